// Normalizer and most likely tokens of unmodified logits.
// Uses the same candidates as the chain, which never change logits that are not edited.
#include "src/sample/logprobs.h"

#include <algorithm>
#include <cmath>

namespace nibble {

namespace {

// Read-only use of Candidates: begin() wants a mutable span for edits, and none are made here.
std::span<float> unedited(std::span<const float> logits) {
    return {const_cast<float*>(logits.data()), logits.size()};
}

double normalizer(std::span<const float> logits, double best) {
    // Not the integer weights of the draw: a perplexity also asks for tokens far below the best one.
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit - best);
    return best + std::log(sum);
}

}  // namespace

Result<double> log_sum_exp(std::span<const float> logits) {
    Candidates candidates;
    NIBBLE_TRY(candidates.begin(unedited(logits)));
    return normalizer(logits, candidates.best());
}

Result<std::vector<TokenLogprob>> top_logprobs(std::span<const float> logits, size_t n) {
    return top_logprobs(logits, n, NIBBLE_TRY(log_sum_exp(logits)));
}

Result<std::vector<TokenLogprob>> top_logprobs(std::span<const float> logits, size_t n, double log_sum) {
    Candidates candidates;
    NIBBLE_TRY(candidates.begin(unedited(logits)));
    std::vector<TokenLogprob> result;
    if (n == 0) return result;
    candidates.keep_top(n);
    for (const Candidate& c : candidates.sorted(n)) result.push_back({c.id, c.logit - log_sum});
    return result;
}

}  // namespace nibble
