// Merging the candidates of all beams; scores.
// The candidates are few (width squared), so they are simply sorted.
#include "src/sample/beam_search.h"

#include <algorithm>
#include <cmath>

namespace nibble {

double answer_score(double logprob, size_t n_tokens, double penalty) {
    return n_tokens == 0 ? 0 : logprob / std::pow(static_cast<double>(n_tokens), penalty);
}

std::vector<Continuation> best_continuations(std::span<const double> logprobs,
                                             std::span<const std::vector<TokenLogprob>> next, size_t limit) {
    std::vector<Continuation> all;
    for (size_t beam = 0; beam < logprobs.size(); ++beam)
        for (const TokenLogprob& t : next[beam])
            all.push_back({beam, t.token, t.logprob, logprobs[beam] + t.logprob});
    std::ranges::sort(all, [](const Continuation& a, const Continuation& b) {
        if (a.logprob != b.logprob) return a.logprob > b.logprob;
        return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
    });
    if (all.size() > limit) all.resize(limit);
    return all;
}

}  // namespace nibble
