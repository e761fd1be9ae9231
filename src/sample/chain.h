// The sampler chain of one sequence: turns logits into tokens, and remembers what was accepted.
// Built from SamplerParams; the order of its links is visible (describe) and settable (params.samplers).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ggml/base/result.h"
#include "src/sample/params.h"
#include "src/sample/sampler.h"

namespace nibble {

// A constraint on the next token (a grammar). The chain first picks freely and keeps the token if it is
// allowed; only otherwise, which is rare once a model follows the format, it masks the logits and picks anew,
// with a random number of its own. With P the distribution of the free chain, Q that of the chain on masked
// logits and r = P(not allowed), an allowed token is drawn with probability P(t) + r Q(t). Without truncating
// links (top-k, top-p, ...) P(t) = (1 - r) Q(t), so that is exactly Q; with them it lies between P restricted
// to allowed tokens and Q. Greedy gives the best allowed token in either case. probabilities() gives Q.
class TokenFilter {
  public:
    virtual ~TokenFilter() = default;
    virtual bool allows(Token token) = 0;
    virtual void mask(std::span<float> logits) = 0;  // sets the logits of tokens not allowed to -inf
};

struct TokenProbability {
    Token token = 0;
    double probability = 0;
};

class Chain {
  public:
    // Errors (invalid_argument): a value out of range, an unknown sampler, a token id >= n_vocab in
    // logit_bias, n_vocab outside 1 .. 2^19.
    static Result<Chain> create(const SamplerParams& params, size_t n_vocab);

    // Picks the next token: runs the links, then draws by inverse distribution function over the candidates
    // in order (descending logit, ties by id): the first token whose cumulative weight exceeds the random
    // share of the total. Integer weights, so the pick depends on logits, history and rng only. At
    // temperature 0 the best token after the edits (penalties, DRY, bias), the lowest id on ties; nothing is
    // drawn.
    //
    // logits: one per token of the vocabulary, unnormalized; edited meanwhile, unchanged afterwards.
    // rng: the pick uses the numbers of its step and then moves it to the next step.
    // Errors: a NaN or +inf logit (names the token); every token excluded; an unsatisfiable filter.
    Result<Token> pick(std::span<float> logits, Rng& rng, TokenFilter* filter = nullptr);

    // The same from the best tokens alone, for logits that are far away: the token that pick() would find
    // among all, or nothing where these do not tell. Then nothing has changed, and pick() has to have all
    // logits. They tell for greedy decoding, where the first link that truncates is top-k or min-p and keeps
    // fewer, and, given the total weight at weighed_at(), where the draw or top-p ends among them; a
    // constraint must allow the token.
    Result<std::optional<Token>> pick(const FirstTokens& first, Rng& rng, TokenFilter* filter = nullptr);

    // The temperature at which the weight of all tokens would help to decide by the best ones; 0: it would
    // not.
    double weighed_at() const;

    // How a device draws what pick() would, at the numbers of rng's step; nothing where the chain has links
    // that no device has, or looks back too far. `ahead`: see Sampler::describe().
    std::optional<DrawRow> draw_row(const Rng& rng, bool ahead) const;

    // The distribution that pick() would draw from: the n most likely tokens in order, summing to 1 if n
    // covers all candidates. At temperature 0 one token with probability 1.
    Result<std::vector<TokenProbability>> probabilities(std::span<float> logits, const Rng& rng, size_t n,
                                                        TokenFilter* filter = nullptr);

    // Adds a token to the history: every prompt token and every generated one. Ids outside the vocabulary are
    // ignored.
    void accept(Token token);
    // Goes back to the first n_tokens accepted ones. Mirostat starts anew.
    void rewind(size_t n_tokens);
    void reset() { rewind(0); }

    // An independent chain in the same state, e.g. for a fork of the sequence.
    Chain clone() const;

    std::span<const Token> history() const { return history_; }
    // The links in effect, with their values: "top_k(40) > top_p(0.95) > temperature(0.8)"; "greedy" at the
    // end if the temperature is 0.
    std::string describe() const;

  private:
    Chain() = default;
    Result<void> run(std::span<float> logits, const Rng& rng);
    Result<void> run_links(const Rng& rng);
    Result<std::span<float>> masked(std::span<const float> logits, TokenFilter& filter);
    Token draw(uint64_t random);

    SamplerParams params_;
    size_t n_vocab_ = 0;
    bool greedy_ = false;
    struct Active {
        const Link* link;
        std::unique_ptr<Sampler> sampler;
    };
    std::vector<Active> links_;
    std::vector<Token> history_;
    Candidates candidates_;      // working memory, kept between steps
    std::vector<float> masked_;  // likewise; empty until a filter first rejects
};

}  // namespace nibble
