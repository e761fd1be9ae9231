// The weight of a logit: exp(logit - best) as an integer, from additions and multiplications only.
// Integer weights add up to the same sum in any order, on any ISA, with any number of threads, on a GPU too.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace nibble {

// The best token weighs 2^44; a token 31 nats below it weighs 1 and everything further down 0 (a probability
// under 6e-14 of the best, which no draw would see). The weights of a vocabulary add up without overflow.
inline constexpr int weight_bits = 44;
inline constexpr double weight_one = 0x1p44;
inline constexpr int32_t max_vocab = 1 << 19;

// round(exp(x) * 2^44) for x <= 0, to within one unit; -inf and NaN give 0. Argument reduction after
// W. J. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980, chapter 6: x = n ln 2 + r,
// |r| <= ln(2)/2, then the Taylor series of exp(r) to r^11, whose remainder (7e-15) is below half a unit
// (3e-14). Real is double or a vector of doubles, Word as many uint64_t; nothing may be contracted. Nothing
// is handed over by value, for not every processor has registers for a wide vector.
template <class Real, class Word>
constexpr void exp_weight(const Real& x_any, Word& weight) {
    constexpr double magic = 0x1.8p52;  // adding it leaves the rounded integer in the low bits
    constexpr double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
    const Real floor = Real{} - 40.0;
    const Real x = x_any > floor ? x_any : floor;
    const Real shifted = x * 0x1.71547652b82fep0 + magic;
    const Real n = shifted - magic;
    const Real r = (x - n * ln2_high) - n * ln2_low;
    Real e = r * (1.0 / 39916800) + 1.0 / 3628800;
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
    const Word exponent = __builtin_bit_cast(Word, shifted) - std::bit_cast<uint64_t>(magic);
    const Word scale_bits = (exponent + uint64_t{1023 + weight_bits}) << 52;
    const Real scaled = e * __builtin_bit_cast(Real, scale_bits) + 0x1p52;
    weight = __builtin_bit_cast(Word, scaled) & ((uint64_t{1} << 52) - 1);
}
constexpr uint64_t exp_weight(double x) {
    uint64_t weight = 0;
    exp_weight(x, weight);
    return weight;
}

// A logit as a candidate may have it: finite or -inf; NaN becomes -inf.
constexpr float clamped_logit(double logit) {
    using Limits = std::numeric_limits<float>;
    if (!(logit > -std::numeric_limits<double>::infinity())) return -Limits::infinity();
    if (logit < Limits::lowest()) return Limits::lowest();
    return logit > Limits::max() ? Limits::max() : static_cast<float>(logit);
}

// The weight of a logit at a temperature, as the sampler has it: distances from the best are divided and
// rounded to f32, but for a temperature of 1.
constexpr uint64_t exp_weight_at(float logit, float best, double temperature) {
    const double x = static_cast<double>(logit) - static_cast<double>(best);
    return exp_weight(temperature == 1 ? x : static_cast<double>(static_cast<float>(x / temperature)));
}

}  // namespace nibble
