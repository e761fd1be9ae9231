// What encoders share: range reductions that vectorise, the rounding rules of the formats, f16 scales.
// Reductions keep eight partial results in a fixed order, so bytes are the same on every ISA.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ggml/types/float16.h"

namespace nibble {

// Eight floats as one value: the compiler lowers it to whatever vectors the target has.
using f32x8 = float __attribute__((vector_size(32)));

// Largest magnitude of n floats (n a multiple of 8, here and below); NaNs are passed over.
template <int n>
float max_abs(const float* x) {
    f32x8 best = {};
    for (int i = 0; i < n; i += 8) {
        f32x8 v;
        std::memcpy(&v, x + i, sizeof v);
        v = v < 0 ? -v : v;
        best = v > best ? v : best;
    }
    float r = 0;
    for (int l = 0; l < 8; ++l) r = best[l] > r ? best[l] : r;
    return r;
}

// The value of largest magnitude with its sign; the first one on ties.
template <int n>
float signed_extreme(const float* x) {
    const float a = max_abs<n>(x);
    for (int i = 0; i < n; ++i)
        if (std::fabs(x[i]) == a) return x[i];
    return 0;
}

struct Range {
    float lo, hi;
};

template <int n>
Range min_max(const float* x) {
    f32x8 lo, hi;
    std::memcpy(&lo, x, sizeof lo);
    hi = lo;
    for (int i = 8; i < n; i += 8) {
        f32x8 v;
        std::memcpy(&v, x + i, sizeof v);
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
    }
    Range r{lo[0], hi[0]};
    for (int l = 1; l < 8; ++l) {
        r.lo = lo[l] < r.lo ? lo[l] : r.lo;
        r.hi = hi[l] > r.hi ? hi[l] : r.hi;
    }
    return r;
}

// 1 / d, or 0 where that is no finite number: then every element gets the code of zero.
inline float inverse_or_zero(float d) {
    const float r = 1 / d;
    return std::fabs(r) <= 0x1.fffffep127f ? r : 0;
}

// x limited to lo..hi; a NaN becomes lo, so that the conversion to an integer is always defined.
inline float clamped(float x, float lo, float hi) {
    x = x > lo ? x : lo;
    return x < hi ? x : hi;
}

// Nearest integer, halves away from zero (what C's round does), for |x| < 2^31.
inline int round_away(float x) {
    const int whole = static_cast<int>(x);
    const float rest = x - static_cast<float>(whole);  // exact
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

// A scale as f16. Where the value leaves the range of f16 the largest finite one is stored: an infinite
// scale would turn the whole block into infinities and NaNs.
inline uint16_t f16_scale(float d) { return f32_to_f16(clamped(d, -65504.0f, 65504.0f)); }

// q[i] = floor(x[i] * inverse + offset), limited to 0..top: the rounding of the 32-element formats.
template <int n>
void floor_codes(const float* x, float inverse, float offset, int top, uint8_t* q) {
    const float limit = static_cast<float>(top);
    for (int i = 0; i < n; ++i)
        q[i] = static_cast<uint8_t>(static_cast<int>(clamped(x[i] * inverse + offset, 0, limit)));
}

// q[i] = round((x[i] + shift) * inverse), limited to 0..top.
template <int n>
void offset_codes(const float* x, float shift, float inverse, int top, uint8_t* q) {
    const float limit = static_cast<float>(top);
    for (int i = 0; i < n; ++i)
        q[i] = static_cast<uint8_t>(static_cast<int>(clamped((x[i] + shift) * inverse, 0, limit) + 0.5f));
}

// q[i] = round(x[i] * inverse) - lo, with the rounded value limited to lo..hi: codes of signed levels.
template <int n>
void signed_codes(const float* x, float inverse, int lo, int hi, uint8_t* q) {
    const float least = static_cast<float>(lo), most = static_cast<float>(hi);
    for (int i = 0; i < n; ++i)
        q[i] = static_cast<uint8_t>(round_away(clamped(x[i] * inverse, least, most)) - lo);
}

// Midpoints between ascending levels, rounded once to f32.
template <size_t n>
constexpr std::array<float, n - 1> midpoints(const std::array<float, n>& levels) {
    std::array<float, n - 1> m{};
    for (size_t i = 0; i + 1 < n; ++i)
        m[i] = static_cast<float>((static_cast<double>(levels[i]) + static_cast<double>(levels[i + 1])) / 2);
    return m;
}

// Index of the nearest level: how many midpoints lie strictly below x * inverse, so ties go down and a NaN
// gets index 0.
template <int n, size_t cuts>
void level_codes(const float* x, float inverse, const std::array<float, cuts>& mid, uint8_t* q) {
    for (int i = 0; i < n; ++i) {
        const float v = x[i] * inverse;
        int index = 0;
        for (size_t k = 0; k < cuts; ++k) index += v > mid[k];
        q[i] = static_cast<uint8_t>(index);
    }
}

// Two 4-bit codes per byte: element j low and element j + n/2 high in byte j.
template <int n>
void pack_nibbles(const uint8_t* q, uint8_t* out) {
    for (int j = 0; j < n / 2; ++j) out[j] = static_cast<uint8_t>((q[j] & 15) | q[j + n / 2] << 4);
}

template <int n>
void unpack_nibbles(const uint8_t* in, int8_t* q) {
    for (int j = 0; j < n / 2; ++j) {
        q[j] = static_cast<int8_t>(in[j] & 15);
        q[j + n / 2] = static_cast<int8_t>(in[j] >> 4);
    }
}

}  // namespace nibble
