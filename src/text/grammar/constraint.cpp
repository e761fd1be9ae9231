// Masks by walking the tree of tokens with the automaton; cached states and masks within fixed bounds.
// When the bounds are reached everything but the positions in use is forgotten.
#include "src/text/grammar/constraint.h"

#include <algorithm>

#include "ggml/base/cat.h"

namespace nibble {
namespace {

constexpr size_t automaton_limit = size_t{64} << 20, mask_limit = size_t{64} << 20;  // bytes

}  // namespace

Result<std::shared_ptr<Constraint>> Constraint::create(std::shared_ptr<const Grammar> grammar,
                                                       std::shared_ptr<const TokenTrie> tokens) {
    std::shared_ptr<Constraint> c(new Constraint(std::move(grammar), std::move(tokens)));
    if (c->automaton_.start() == dead_state)
        return Error{ErrorCode::unsupported, "constraint",
                     cat("begins more than ", Stacks::max_depth, " rules deep"), ""};
    Matcher m(c);
    const auto mask = m.mask();
    if (std::ranges::all_of(*mask, [](uint64_t word) { return word == 0; }))
        return Error{ErrorCode::invalid_argument, "constraint",
                     m.may_end() ? "allows only the empty text, and the vocabulary has no token that ends"
                                 : "no token of this vocabulary can begin a text that meets it",
                     "use another grammar or model"};
    return c;
}

ParseState Constraint::follow(ParseState at, std::string_view text) {
    for (const char c : text)
        if ((at = automaton_.next(at, static_cast<unsigned char>(c))) == dead_state) break;
    return at;
}

ParseState Constraint::follow(ParseState at, Token token) {
    if (token < 0 || static_cast<size_t>(token) >= tokens_->n_vocab()) return dead_state;
    const std::string& text = tokens_->piece(token);
    return text.empty() ? dead_state : follow(at, text);
}

void Constraint::limit_memory(std::vector<ParseState>* more) {
    if (automaton_.bytes() < automaton_limit) return;
    std::vector<ParseState*> live = positions_;
    if (more)
        for (ParseState& s : *more) live.push_back(&s);
    automaton_.collect(live);
    masks_.clear();
    mask_bytes_ = 0;
}

std::shared_ptr<const TokenMask> Constraint::mask(ParseState& from) {
    const auto cached = static_cast<size_t>(from);
    if (cached < masks_.size() && masks_[cached]) {
        ++counters_.masks_reused;
        return masks_[cached];
    }
    ++counters_.masks_made;
    const std::shared_ptr<const TokenMask> made = make_mask(from);
    const size_t bytes = made->size() * sizeof(uint64_t);
    if (mask_bytes_ + bytes > mask_limit) {
        masks_.clear();
        mask_bytes_ = 0;
    }
    mask_bytes_ += bytes;
    if (masks_.size() <= static_cast<size_t>(from)) masks_.resize(static_cast<size_t>(from) + 1);
    masks_[static_cast<size_t>(from)] = made;
    return made;
}

// `from` is one of positions_, so that it survives limit_memory().
std::shared_ptr<TokenMask> Constraint::make_mask(ParseState& from) {
    auto mask = std::make_shared<TokenMask>((tokens_->n_vocab() + 63) / 64, 0);
    const auto allow = [&](Token t) {
        (*mask)[static_cast<size_t>(t) / 64] |= uint64_t{1} << (static_cast<size_t>(t) % 64);
    };
    if (automaton_.may_end(from))
        for (const Token t : tokens_->end_tokens()) allow(t);
    const auto nodes = tokens_->nodes();
    std::vector<ParseState> path(tokens_->max_depth() + 1, dead_state);  // the state before each byte
    path[0] = from;
    size_t work = 0;
    for (size_t i = 0; i < nodes.size();) {
        const TokenTrie::Node& n = nodes[i];
        const ParseState to = automaton_.next(path[n.depth], n.byte);
        if (to == dead_state) {
            i = n.after;
            continue;
        }
        path[n.depth + 1u] = to;
        for (const Token t : tokens_->tokens(n)) allow(t);
        ++i;
        if (++work % 64 == 0 && automaton_.bytes() >= automaton_limit) {
            std::fill(path.begin() + n.depth + 2, path.end(), dead_state);
            limit_memory(&path);
        }
    }
    return mask;
}

Matcher::Matcher(std::shared_ptr<Constraint> constraint)
    : constraint_(std::move(constraint)), at_(constraint_->automaton_.start()) {
    constraint_->positions_.push_back(&at_);
}

Matcher::Matcher(const Matcher& other)
    : constraint_(other.constraint_), at_(other.at_), ended_(other.ended_) {
    constraint_->positions_.push_back(&at_);
}

Matcher& Matcher::operator=(const Matcher& other) {
    if (this == &other) return *this;
    std::erase(constraint_->positions_, &at_);
    constraint_ = other.constraint_;
    at_ = other.at_;
    ended_ = other.ended_;
    constraint_->positions_.push_back(&at_);
    return *this;
}

Matcher::~Matcher() { std::erase(constraint_->positions_, &at_); }

bool Matcher::may_end() const { return constraint_->automaton_.may_end(at_); }
bool Matcher::may_continue() const { return !ended_ && constraint_->automaton_.may_continue(at_); }

bool Matcher::allows(Token token) const {
    const TokenTrie& tokens = *constraint_->tokens_;
    if (ended_ || token < 0 || static_cast<size_t>(token) >= tokens.n_vocab()) return false;
    if (tokens.ends(token)) return may_end();
    return constraint_->follow(at_, token) != dead_state;
}

std::shared_ptr<const TokenMask> Matcher::mask() const {
    if (ended_) return std::make_shared<TokenMask>((constraint_->tokens_->n_vocab() + 63) / 64, 0);
    return constraint_->mask(at_);
}

Result<void> Matcher::accept(Token token) {
    if (!allows(token))
        return Error{ErrorCode::invalid_argument, "constraint", cat("token ", token, " is not allowed here"),
                     ""};
    if (constraint_->tokens_->ends(token)) {
        ended_ = true;
        return {};
    }
    at_ = constraint_->follow(at_, token);
    constraint_->limit_memory(nullptr);
    return {};
}

Result<void> Matcher::accept(std::string_view text) {
    const ParseState to = ended_ && !text.empty() ? dead_state : constraint_->follow(at_, text);
    if (to == dead_state)
        return Error{ErrorCode::invalid_argument, "constraint",
                     cat("the text '", text, "' is not allowed here"), ""};
    at_ = to;
    constraint_->limit_memory(nullptr);
    return {};
}

}  // namespace nibble
