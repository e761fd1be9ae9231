// Log-probabilities under the model's own distribution: before the chain, temperature 1.
// For --logprobs, perplexity and best-of-n.
#pragma once

#include <span>
#include <vector>

#include "ggml/base/result.h"
#include "src/sample/candidates.h"

namespace nibble {

struct TokenLogprob {
    Token token = 0;
    double logprob = 0;  // natural logarithm
};

// ln sum exp(logits), the normalizer: logprob(t) = logits[t] - log_sum_exp(logits).
// Summed in double, in the order of the ids. An Error names a NaN or +inf logit, or says that all are -inf.
Result<double> log_sum_exp(std::span<const float> logits);

// The n most likely tokens in order (fewer if fewer are possible). O(vocabulary), without sorting it.
Result<std::vector<TokenLogprob>> top_logprobs(std::span<const float> logits, size_t n);
// With a normalizer that is known: of these logits, or of those before some were set to -inf.
Result<std::vector<TokenLogprob>> top_logprobs(std::span<const float> logits, size_t n, double log_sum);

}  // namespace nibble
