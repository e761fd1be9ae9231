// Perplexity of a text, and how far one model's predictions are from another's.
// Perplexity = exp(mean -ln p(token)); divergence = mean KL(base || model) over the scored positions, in
// nats.
#pragma once

#include <functional>

#include "ggml/base/thread_pool.h"
#include "src/eval/scorer.h"

namespace nibble {

struct PerplexityResult {
    size_t tokens = 0;    // scored
    double mean_nll = 0;  // nats
    double perplexity = 0;
    double stderr_nll = 0;  // standard error of the mean nll; times perplexity: of the perplexity
    // Against a base model:
    bool has_base = false;
    double base_perplexity = 0;
    double mean_kl = 0, stderr_kl = 0;
    double kl_median = 0, kl_p90 = 0, kl_p99 = 0, kl_max = 0;
    double top1_agreement = 0;  // share of positions whose likeliest token is the same
};

// Adds up over windows; results do not depend on the number of threads.
class PerplexityMeter {
  public:
    explicit PerplexityMeter(ThreadPool& pool) : pool_(&pool) {}

    // logits and base_logits (may be empty): [window x n_vocab]. A NaN is an Error.
    Result<void> add(const Window& window, std::span<const float> logits, std::span<const float> base_logits,
                     size_t n_vocab);
    PerplexityResult result() const;

  private:
    struct Position {
        double nll = 0, base_nll = 0, kl = 0;
        bool same_top = false;
    };
    ThreadPool* pool_;
    bool has_base_ = false;
    std::vector<Position> positions_;
};

}  // namespace nibble
