// From logits to an event: the sampler chain under a constraint, text, the reasons to end.
// Everything here is about one sequence; which sequences there are is decided elsewhere.
#include <algorithm>
#include <limits>

#include "src/engine/state.h"

namespace nibble {

void forbid_what_breaks(const Matcher& matcher, std::span<float> logits) {
    const auto mask = matcher.mask();
    for (size_t word = 0; word * 64 < logits.size(); ++word) {
        const uint64_t bits = word < mask->size() ? (*mask)[word] : 0;
        if (bits == ~uint64_t{0}) continue;
        const size_t end = std::min(logits.size(), word * 64 + 64);
        for (size_t i = word * 64; i < end; ++i)
            if (!(bits >> (i % 64) & 1)) logits[i] = -std::numeric_limits<float>::infinity();
    }
}

namespace {

// A sequence's grammar as the sampler sees it.
class MatcherFilter : public TokenFilter {
  public:
    explicit MatcherFilter(const Matcher& matcher) : matcher_(matcher) {}
    bool allows(Token token) override { return matcher_.allows(token); }
    void mask(std::span<float> logits) override {
        masked_ = true;
        forbid_what_breaks(matcher_, logits);
    }

    bool masked() const { return masked_; }

  private:
    const Matcher& matcher_;
    bool masked_ = false;
};

}  // namespace

// The text that was held back, at the end.
std::string Engine::State::rest_of(Sequence& s) {
    const std::string last = s.stop.push(s.detokenizer.flush());
    return last + s.stop.flush();
}

Finish Engine::State::finish_of(const Sequence& s, Token token) const {
    if (s.stop.matched()) return Finish::stop;
    if (!s.request->ignore_eos && tokenizer.is_end_of_generation(token)) return Finish::eos;
    if (std::ranges::find(s.request->stop_tokens, token) != s.request->stop_tokens.end()) return Finish::eos;
    if (s.matcher && !s.matcher->may_continue()) return Finish::complete;
    if (s.request->max_tokens >= 0 && s.n_generated >= s.request->max_tokens) return Finish::length;
    if (static_cast<int32_t>(s.tokens.size()) >= runner.config().ctx) return Finish::context;
    return Finish::none;
}

bool Engine::State::ends_with_next(const Sequence& s) const {
    const int64_t most = s.request->max_tokens;
    return (most >= 0 && s.n_generated + 1 >= most) ||
           static_cast<int32_t>(s.tokens.size()) + 1 >= runner.config().ctx;
}

// Under a constraint only tokens that keep to it, as TokenFilter says; nothing if there is none.
Result<std::optional<Token>> Engine::State::pick(Sequence& s, std::span<float> logits) {
    if (!s.matcher) return std::optional(NIBBLE_TRY(s.chain.pick(logits, s.rng)));
    MatcherFilter filter(*s.matcher);
    const Result<Token> token = s.chain.pick(logits, s.rng, &filter);
    if (!token && filter.masked()) return std::optional<Token>();
    NIBBLE_TRY(token);
    NIBBLE_TRY(s.matcher->accept(*token));
    return std::optional(*token);
}

// The same from a row's best tokens; nothing where they do not tell.
Result<std::optional<Token>> Engine::State::pick(Sequence& s, const FirstTokens& first) {
    std::vector<Candidate> known(first.list.begin(), first.list.end());
    std::erase_if(known,
                  [this](const Candidate& c) { return static_cast<size_t>(c.id) >= tokenizer.n_vocab(); });
    if (!s.matcher) return s.chain.pick({known, first.total}, s.rng);
    MatcherFilter filter(*s.matcher);
    const std::optional<Token> token = NIBBLE_TRY(s.chain.pick({known, first.total}, s.rng, &filter));
    if (token) NIBBLE_TRY(s.matcher->accept(*token));
    return token;
}

// A vocabulary padded beyond the tokenizer: ids without text must never be drawn.
void Engine::State::forbid_padding(std::span<float> logits) const {
    std::fill(logits.begin() + static_cast<int64_t>(tokenizer.n_vocab()), logits.end(),
              -std::numeric_limits<float>::infinity());
}

Result<std::span<float>> Engine::State::logits_of(size_t row) {
    const auto n_vocab = static_cast<size_t>(runner.spec().n_vocab);
    return NIBBLE_TRY(runner.logits()).subspan(row * n_vocab, n_vocab);
}

// All logits are fetched from a device only where its list of the best does not tell.
Result<Event> Engine::State::sample(Sequence& s, size_t row) {
    const FirstTokens first = runner.first_tokens(row);
    if (!first.list.empty() && s.request->logprobs < 0)
        if (const auto token = NIBBLE_TRY(pick(s, first))) return append(s, *token);
    return sample(s, NIBBLE_TRY(logits_of(row)));
}

Result<Event> Engine::State::sample(Sequence& s, std::span<float> logits) {
    forbid_padding(logits);
    // Of the model's own distribution: a constraint may change the logits below.
    const bool weighed = s.request->logprobs >= 0 || s.choice;
    const double log_sum = weighed ? NIBBLE_TRY(log_sum_exp(logits)) : 0;
    std::vector<TokenLogprob> top;
    if (s.request->logprobs > 0)
        top = NIBBLE_TRY(top_logprobs(logits, static_cast<size_t>(s.request->logprobs), log_sum));
    const std::optional<Token> token = NIBBLE_TRY(pick(s, logits));
    Event e;
    if (token) {
        e = append(s, *token);
        if (weighed) e.logprob = static_cast<double>(logits[static_cast<size_t>(*token)]) - log_sum;
    } else {
        e.request = s.id;
        e.text = rest_of(s);
        e.finish = Finish::stuck;
    }
    e.top = std::move(top);
    return e;
}

// The sequence goes on by a token: what became certain to print, and whether that was the end.
Event Engine::State::append(Sequence& s, Token token) const {
    Event e;
    e.request = s.id;
    e.token = token;
    s.drawn_here = std::max(0, s.drawn_here - 1);
    s.chain.accept(token);
    s.tokens.push_back(token);
    ++s.n_generated;
    const bool ends = !s.request->ignore_eos && tokenizer.is_end_of_generation(token);
    if (!ends) e.text = s.stop.push(s.detokenizer.push(token));
    e.finish = finish_of(s, token);
    if (e.finish != Finish::none && e.finish != Finish::stop) e.text += rest_of(s);
    e.text_held = s.detokenizer.holds() || s.stop.holds();
    return e;
}

}  // namespace nibble
