// The weight of a logit: exp(logit - best) as an integer, from additions and multiplications only.
// Integer weights add up to the same sum in any order, on any ISA, with any number of threads, on a GPU too.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace nibble {

// The best token weighs 2^44; a token 31 nats below it weighs 1 and everything further down 0 (a probability
// under 6e-14 of the best, which no draw would see). The weights of a vocabulary add up without overflow.
inline constexpr int weight_bits = 44;
inline constexpr double weight_one = 0x1p44;
inline constexpr int32_t max_vocab = 1 << 19;

// Two lanes at a time, in the vector types of GCC and Clang: every 64-bit machine has registers for them.
using Double2 [[gnu::vector_size(16)]] = double;
using Word2 [[gnu::vector_size(16)]] = uint64_t;

// round(exp(x) * 2^44) for x <= 0, to within one unit; -inf and NaN give 0. Argument reduction after
// W. J. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980, chapter 6: x = n ln 2 + r,
// |r| <= ln(2)/2, then the Taylor series of exp(r) to r^11, whose remainder (7e-15) is below half a unit
// (3e-14).
inline Word2 weights_of(Double2 x) {
    constexpr double magic = 0x1.8p52;  // adding it leaves the rounded integer in the low bits
    constexpr double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
    const Double2 floor = {-40.0, -40.0};
    x = x > floor ? x : floor;
    const Double2 shifted = x * 0x1.71547652b82fep0 + magic;
    const Double2 n = shifted - magic;
    const Double2 r = (x - n * ln2_high) - n * ln2_low;
    Double2 e = r * (1.0 / 39916800) + 1.0 / 3628800;
    e = e * r + 1.0 / 362880;
    e = e * r + 1.0 / 40320;
    e = e * r + 1.0 / 5040;
    e = e * r + 1.0 / 720;
    e = e * r + 1.0 / 120;
    e = e * r + 1.0 / 24;
    e = e * r + 1.0 / 6;
    e = e * r + 0.5;
    e = e * r + 1.0;
    e = e * r + 1.0;
    const Word2 exponent = std::bit_cast<Word2>(shifted) - std::bit_cast<uint64_t>(magic);
    const Double2 scale = std::bit_cast<Double2>((exponent + uint64_t{1023 + weight_bits}) << 52);
    return std::bit_cast<Word2>(e * scale + 0x1p52) & ((uint64_t{1} << 52) - 1);
}

inline uint64_t weight_of(double x) { return weights_of(Double2{x, x})[0]; }

// ln(weight / 2^44): of a sum of weights, the log of the normalizer relative to the best logit.
inline double log_of_weight(uint64_t weight) { return std::log(static_cast<double>(weight) / weight_one); }

}  // namespace nibble
