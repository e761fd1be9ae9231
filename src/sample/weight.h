// Weights of logits as the sampler takes them: two at a time, and back to logarithms.
// What a weight is stands in ggml/base/exp_weight.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "ggml/base/exp_weight.h"

namespace nibble {

// Two lanes at a time, in the vector types of GCC and Clang: every 64-bit machine has registers for them.
using Double2 [[gnu::vector_size(16)]] = double;
using Word2 [[gnu::vector_size(16)]] = uint64_t;

inline Word2 weights_of(Double2 x) { return exp_weight<Double2, Word2>(x); }
inline uint64_t weight_of(double x) { return exp_weight<double, uint64_t>(x); }

// ln(weight / 2^44): of a sum of weights, the log of the normalizer relative to the best logit.
inline double log_of_weight(uint64_t weight) { return std::log(static_cast<double>(weight) / weight_one); }

}  // namespace nibble
