// From stated RoPE parameters to the frequencies that kernels use.
// Position interpolation (arXiv:2306.15595), YaRN (arXiv:2309.00071), and the Llama 3 scheme.
#pragma once

#include "src/model/hyper.h"
#include "src/model/spec.h"

namespace nibble {

// Position interpolation for short and long contexts apart: LongRoPE (arXiv:2402.13753).

// Divisors of the plain frequencies theta^(-2i/rot_dim), one per pair; all 1 without scaling.
// GGUF stores the Llama 3 ones as the tensor rope_freqs.weight.
Result<std::vector<float>> rope_factors(const RopeScaling& scaling, float theta, int32_t rot_dim);

// How many of the pairs of a head rotate, the first, when a share of it does.
size_t rotating_pairs(size_t pairs, float share);

// The same as divisors of frequencies, as GGUF states it in rope_freqs.weight: those of other pairs are so
// large that they do not rotate.
std::vector<float> rotating_divisors(size_t pairs, float share);

// YaRN's factor on what rotates, 1 + 0.1 mscale ln(factor).
float yarn_magnitude(float factor, float mscale);

// `stored_factors`: the contents of rope_freqs.weight, or empty; it multiplies on top of the scaling.
Result<RopeSpec> make_rope(const Hyper& h, int32_t rot_dim, RopeStyle style,
                           const std::vector<float>& stored_factors);

}  // namespace nibble
