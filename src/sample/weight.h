// Weights of logits as the sampler takes them, many at a time, and back to logarithms.
// What a weight is stands in ggml/base/exp_weight.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ggml/base/exp_weight.h"

namespace nibble {

inline uint64_t weight_of(double x) { return exp_weight(x); }

// ln(weight / 2^44): of a sum of weights, the log of the normalizer relative to the best logit.
inline double log_of_weight(uint64_t weight) { return std::log(static_cast<double>(weight) / weight_one); }

// What a stored logit stands for: itself, or its distance from the best one over a temperature.
struct LogitScale {
    double best = 0;
    double temperature = 0;  // 0: itself
    bool on() const { return temperature != 0; }
    float operator()(float logit) const { return on() ? clamped_logit((logit - best) / temperature) : logit; }
};

// Logits are weighed in runs of this many, or fewer at the end.
inline constexpr size_t weighed_at_once = 64;
struct WeighedRun {
    double distance[weighed_at_once];  // from `top`
    uint64_t weight[weighed_at_once];
};

// Weighs n <= weighed_at_once logits against `top`, the best of what they stand for.
void weigh_run(const float* logits, size_t n, const LogitScale& scale, double top, WeighedRun& out);

// Whole runs, by the registers of each width that this processor has, the widest last.
using WeighWhole = void (*)(const float* logits, const LogitScale& scale, double top, WeighedRun& out);
std::vector<WeighWhole> ways_to_weigh();

}  // namespace nibble
