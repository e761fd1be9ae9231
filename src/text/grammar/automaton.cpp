// Making states: follow the byte, then forks, returns and calls until only states that read a byte are left.
// Calls are entered in the order of the rules' ranks, so that all callers of a rule are known by then.
#include "src/text/grammar/automaton.h"

#include <algorithm>

namespace nibble {
namespace {

uint64_t key_of(int32_t state, StackId stack) {
    return static_cast<uint64_t>(state) << 32 | static_cast<uint32_t>(stack);
}

}  // namespace

Automaton::Automaton(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)), n_classes_(static_cast<size_t>(grammar_->n_classes())) {
    reset();
}

void Automaton::reset() {
    stacks_ = Stacks();
    states_.clear();
    table_.clear();
    known_.clear();
    n_configs_ = 0;
    pending_ = {{grammar_->rule(grammar_->start_rule()).start, Stacks::empty_stack}};
    start_ = close();
}

size_t Automaton::bytes() const {
    return table_.size() * sizeof(ParseState) + states_.size() * 96 + n_configs_ * sizeof(Config) +
           stacks_.bytes();
}

bool Automaton::take_too_deep() { return std::exchange(too_deep_, false); }

ParseState Automaton::make_next(ParseState from, unsigned char byte) {
    pending_.clear();
    for (const Config& c : states_[static_cast<size_t>(from)].reads) {
        const Grammar::State& s = grammar_->state(c.state);
        if (s.low <= byte && byte <= s.high) pending_.push_back({s.next, c.stack});
    }
    const ParseState to = pending_.empty() ? dead_state : close();
    table_[static_cast<size_t>(from) * n_classes_ + grammar_->byte_class(byte)] = to;
    return to;
}

// One step of the closure: sorts a configuration into reads_, calls_, or what follows without a byte.
void Automaton::visit(Config c) {
    const Grammar::State& s = grammar_->state(c.state);
    if (!s.useful || !seen_.try_emplace(key_of(c.state, c.stack), true).second) return;
    switch (s.kind) {
        case Grammar::State::Kind::bytes:
            reads_.push_back(c);
            break;
        case Grammar::State::Kind::fork:
            pending_.push_back({s.other, c.stack});
            pending_.push_back({s.next, c.stack});
            break;
        case Grammar::State::Kind::end:
            accepts_ |= stacks_.has_empty(c.stack);
            for (const Stacks::Entry& e : stacks_.entries(c.stack)) pending_.push_back({e.state, e.below});
            break;
        case Grammar::State::Kind::call: {
            const Grammar::Rule& rule = grammar_->rule(s.other);
            calls_.push_back({rule.rank, s.other, s.next, c.stack});
            std::ranges::push_heap(calls_, std::greater<>(), &Call::rank);
            // A rule that may be empty is skipped here, so that it need not return within this closure.
            if (grammar_->state(rule.start).nullable) pending_.push_back({s.next, c.stack});
            break;
        }
        case Grammar::State::Kind::fail:
            break;
    }
}

// Enters the rule of lowest rank, for all its callers together. A call at the end of its own rule needs no
// stack entry: it returns to where its caller returns.
void Automaton::call_rules() {
    const RuleId rule = calls_.front().rule;
    std::vector<StackId> back;
    while (!calls_.empty() && calls_.front().rule == rule) {
        const Call call = calls_.front();
        std::ranges::pop_heap(calls_, std::greater<>(), &Call::rank);
        calls_.pop_back();
        const bool last = grammar_->state(call.back).kind == Grammar::State::Kind::end;
        const StackId stack = last ? call.stack : stacks_.push(call.back, call.stack);
        too_deep_ |= stack < 0;
        if (stack >= 0) back.push_back(stack);
    }
    if (!back.empty()) pending_.push_back({grammar_->rule(rule).start, stacks_.merge(std::move(back))});
}

ParseState Automaton::close() {
    seen_.clear();
    reads_.clear();
    calls_.clear();
    accepts_ = false;
    while (!pending_.empty() || !calls_.empty()) {
        if (pending_.empty()) call_rules();
        if (pending_.empty()) continue;
        const Config c = pending_.back();
        pending_.pop_back();
        visit(c);
    }
    if (reads_.empty() && !accepts_) return dead_state;
    std::ranges::sort(reads_);
    Parse parse;
    parse.accepts = accepts_;
    for (size_t i = 0; i < reads_.size();) {
        std::vector<StackId> stacks;
        const int32_t state = reads_[i].state;
        for (; i < reads_.size() && reads_[i].state == state; ++i) stacks.push_back(reads_[i].stack);
        parse.reads.push_back({state, stacks_.merge(std::move(stacks))});
    }
    return intern(std::move(parse));
}

ParseState Automaton::intern(Parse parse) {
    uint64_t hash = parse.accepts ? 1 : 0;
    for (const Config& c : parse.reads) hash = hash_mix(hash, key_of(c.state, c.stack));
    const auto [first, last] = known_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
        const Parse& p = states_[static_cast<size_t>(it->second)];
        if (p.accepts == parse.accepts && p.reads == parse.reads) return it->second;
    }
    const auto id = static_cast<ParseState>(states_.size());
    n_configs_ += parse.reads.size();
    states_.push_back(std::move(parse));
    table_.resize(table_.size() + n_classes_, unknown);
    known_.emplace(hash, id);
    return id;
}

// What a node is made of has a lower id than the node, at most Stacks::max_depth levels down.
StackId Automaton::rebuild(const Stacks& old, StackId id, std::unordered_map<StackId, StackId>& made) {
    if (id == Stacks::empty_stack) return id;
    if (const auto known = made.find(id); known != made.end()) return known->second;
    std::vector<Stacks::Entry> entries;
    for (const Stacks::Entry& e : old.entries(id)) entries.push_back({e.state, rebuild(old, e.below, made)});
    const StackId result = stacks_.intern(old.has_empty(id), entries);
    made.emplace(id, result);
    return result;
}

void Automaton::collect(const std::vector<ParseState*>& live) {
    const Stacks old = std::move(stacks_);
    const std::vector<Parse> parses = std::move(states_);
    reset();
    std::unordered_map<StackId, StackId> made;
    for (ParseState* state : live) {
        if (*state == dead_state) continue;
        Parse parse = parses[static_cast<size_t>(*state)];
        for (Config& c : parse.reads) c.stack = rebuild(old, c.stack, made);
        *state = intern(std::move(parse));
    }
}

}  // namespace nibble
