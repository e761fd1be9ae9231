// Compiling rules and finding out about them: which states lead to an end, which rules may be empty, which
// rules begin with which. All of it in time linear in the number of states.
#include "src/text/grammar/grammar.h"

#include <algorithm>

#include "ggml/base/cat.h"
#include "src/text/grammar/compile.h"

namespace nibble {
namespace {

using State = Grammar::State;

// The states that lead to each state in one step, as one flat list.
class Reverse {
  public:
    explicit Reverse(const std::vector<State>& states) : begin_(states.size() + 1, 0) {
        each(states, [this](size_t, int32_t to) { ++begin_[static_cast<size_t>(to) + 1]; });
        for (size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
        from_.resize(begin_.back());
        std::vector<size_t> at(begin_.begin(), begin_.end() - 1);
        each(states, [&](size_t from, int32_t to) {
            from_[at[static_cast<size_t>(to)]++] = static_cast<int32_t>(from);
        });
    }
    std::span<const int32_t> of(int32_t state) const {
        const auto s = static_cast<size_t>(state);
        return std::span(from_).subspan(begin_[s], begin_[s + 1] - begin_[s]);
    }

  private:
    template <class Visit>
    static void each(const std::vector<State>& states, Visit visit) {
        for (size_t i = 0; i < states.size(); ++i) {
            const State& s = states[i];
            if (s.kind == State::Kind::end || s.kind == State::Kind::fail) continue;
            visit(i, s.next);
            if (s.kind == State::Kind::fork) visit(i, s.other);
        }
    }
    std::vector<size_t> begin_;
    std::vector<int32_t> from_;
};

// Spreads a mark backwards from the ends of rules. A call passes it on once its rule's start has it too.
template <class Passes>
void spread(std::vector<State>& states, const std::vector<Grammar::Rule>& rules, bool State::*mark,
            Passes passes) {
    const Reverse reverse(states);
    std::vector<std::vector<int32_t>> callers(rules.size());
    std::vector<std::vector<RuleId>> rules_at(states.size());
    for (size_t r = 0; r < rules.size(); ++r)
        rules_at[static_cast<size_t>(rules[r].start)].push_back(static_cast<RuleId>(r));
    for (size_t i = 0; i < states.size(); ++i)
        if (states[i].kind == State::Kind::call)
            callers[static_cast<size_t>(states[i].other)].push_back(static_cast<int32_t>(i));
    std::vector<int32_t> work;
    const auto set = [&](int32_t id) {
        State& s = states[static_cast<size_t>(id)];
        if (s.*mark) return;
        s.*mark = true;
        work.push_back(id);
    };
    const auto try_call = [&](int32_t id) {
        const State& s = states[static_cast<size_t>(id)];
        const auto start = static_cast<size_t>(rules[static_cast<size_t>(s.other)].start);
        if (states[start].*mark && states[static_cast<size_t>(s.next)].*mark) set(id);
    };
    for (size_t i = 0; i < states.size(); ++i)
        if (states[i].kind == State::Kind::end) set(static_cast<int32_t>(i));
    while (!work.empty()) {
        const int32_t id = work.back();
        work.pop_back();
        for (const int32_t from : reverse.of(id)) {
            const State& s = states[static_cast<size_t>(from)];
            if (s.kind == State::Kind::call) {
                try_call(from);
            } else if (passes(s)) {
                set(from);
            }
        }
        for (const RuleId r : rules_at[static_cast<size_t>(id)])
            for (const int32_t caller : callers[static_cast<size_t>(r)]) try_call(caller);
    }
}

}  // namespace

Result<Grammar> Grammar::compile(const GrammarSource& source, RuleId start) {
    constexpr int32_t max_depth = 4 * max_grammar_nesting;
    StateBuilder builder(source);
    Grammar g;
    g.start_ = start;
    for (const GrammarSource::Rule& rule : source.rules()) {
        if (rule.body < 0)
            return Error{ErrorCode::invalid_argument, cat("rule ", rule.name), "is used but not defined", ""};
        if (source.depth(rule.body) > max_depth)
            return Error{ErrorCode::unsupported, cat("rule ", rule.name), "is nested too deeply",
                         cat("at most ", max_depth)};
        State end;
        end.kind = State::Kind::end;
        g.rules_.push_back({rule.name, 0, 0});
        g.rules_.back().start = builder.emit(rule.body, builder.add(end));
        if (builder.overflowed())
            return Error{ErrorCode::unsupported, cat("rule ", rule.name),
                         cat("makes the grammar larger than ", max_grammar_states, " states"),
                         "use smaller repetition counts"};
    }
    g.states_ = builder.take();
    NIBBLE_TRY(g.analyse());
    return g;
}

Result<void> Grammar::analyse() {
    mark_useful();
    if (!state(rule(start_).start).useful)
        return Error{ErrorCode::invalid_argument, cat("rule ", rule(start_).name),
                     "no text can ever match it", "every way through it never ends or contains an empty set"};
    mark_nullable();
    find_classes();
    return rank_rules();
}

void Grammar::mark_useful() {
    spread(states_, rules_, &State::useful, [](const State&) { return true; });
}

void Grammar::mark_nullable() {
    spread(states_, rules_, &State::nullable, [](const State& s) { return s.kind == State::Kind::fork; });
}

void Grammar::find_classes() {
    std::array<bool, 257> border{};
    for (const State& s : states_) {
        if (s.kind != State::Kind::bytes) continue;
        border[s.low] = true;
        border[s.high + 1u] = true;
    }
    uint8_t c = 0;
    for (size_t b = 0; b < 256; ++b) {
        if (b > 0 && border[b]) ++c;
        classes_[b] = c;
    }
    n_classes_ = c + 1;
}

// visit(rule) for each call that can be reached from the start of the rule without a byte. `seen` is per
// state; rules share no states.
template <class Visit>
void Grammar::left_calls(RuleId r, std::vector<uint8_t>& seen, Visit visit) const {
    std::vector<int32_t> work{rule(r).start};
    while (!work.empty()) {
        const int32_t id = work.back();
        work.pop_back();
        const State& s = state(id);
        if (seen[static_cast<size_t>(id)] || !s.useful) continue;
        seen[static_cast<size_t>(id)] = 1;
        if (s.kind == State::Kind::fork) {
            work.push_back(s.next);
            work.push_back(s.other);
        } else if (s.kind == State::Kind::call) {
            visit(s.other);
            if (state(rule(s.other).start).nullable) work.push_back(s.next);
        }
    }
}

// Depth-first search over "begins with"; a cycle is left recursion, which no stack of calls could follow.
Result<void> Grammar::rank_rules() {
    const size_t n = rules_.size();
    std::vector<std::vector<RuleId>> begins(n);
    std::vector<uint8_t> seen(states_.size(), 0);
    for (size_t r = 0; r < n; ++r) {
        left_calls(static_cast<RuleId>(r), seen, [&](RuleId c) { begins[r].push_back(c); });
        std::ranges::sort(begins[r]);
        begins[r].erase(std::unique(begins[r].begin(), begins[r].end()), begins[r].end());
    }
    enum : uint8_t { fresh, open, done };
    std::vector<uint8_t> color(n, fresh);
    struct Frame {
        RuleId rule;
        size_t child;
    };
    auto rank = static_cast<int32_t>(n);
    for (size_t first = 0; first < n; ++first) {
        if (color[first] != fresh) continue;
        std::vector<Frame> path{{static_cast<RuleId>(first), 0}};
        color[first] = open;
        while (!path.empty()) {
            Frame& top = path.back();
            const auto r = static_cast<size_t>(top.rule);
            if (top.child == begins[r].size()) {
                color[r] = done;
                rules_[r].rank = --rank;
                path.pop_back();
                continue;
            }
            const RuleId next = begins[r][top.child++];
            if (color[static_cast<size_t>(next)] == done) continue;
            if (color[static_cast<size_t>(next)] == open) {
                std::string cycle;
                bool in = false;
                for (const Frame& f : path) {
                    in = in || f.rule == next;
                    if (in) cycle += cat(rule(f.rule).name, " > ");
                }
                return Error{ErrorCode::unsupported, cat("rule ", rule(next).name),
                             cat("begins with itself: ", cycle, rule(next).name),
                             "write the repetition with * or +, or put the recursion last"};
            }
            color[static_cast<size_t>(next)] = open;
            path.push_back({next, 0});
        }
    }
    return {};
}

}  // namespace nibble
