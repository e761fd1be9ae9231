// What encoders share: range reductions that vectorise, the rounding rules of the formats, f16 scales.
// Nothing here depends on the order of a sum or on the width of vectors: bytes are the same on every ISA.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ggml/types/float16.h"

namespace nibble {

// Four floats, integers, bytes: what every machine has vectors for. Encoders round with them explicitly,
// because compilers do not turn the limits below into vector code by themselves.
using f32x4 = float __attribute__((vector_size(16)));
using i32x4 = int32_t __attribute__((vector_size(16)));
using u8x4 = uint8_t __attribute__((vector_size(4)));
using u8x16 = uint8_t __attribute__((vector_size(16)));

// Largest magnitude of n floats (n a multiple of 4, here and below); NaNs are passed over.
template <int n>
float max_abs(const float* x) {
    f32x4 best = {};
    for (int i = 0; i < n; i += 4) {
        f32x4 v;
        std::memcpy(&v, x + i, sizeof v);
        v = v < 0 ? -v : v;
        best = v > best ? v : best;
    }
    float r = 0;
    for (int l = 0; l < 4; ++l) r = best[l] > r ? best[l] : r;
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
    f32x4 lo, hi;
    std::memcpy(&lo, x, sizeof lo);
    hi = lo;
    for (int i = 4; i < n; i += 4) {
        f32x4 v;
        std::memcpy(&v, x + i, sizeof v);
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
    }
    Range r{lo[0], hi[0]};
    for (int l = 1; l < 4; ++l) {
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

// Nearest integer, halves away from zero (what C's round does), for |x| < 2^22. The float below 0.5 is added
// instead of 0.5: only from exact halves upwards does the sum then round up to the next integer.
inline int round_away(float x) { return static_cast<int>(x + std::copysign(0x1.fffffep-2f, x)); }

// A scale as f16. Where the value leaves the range of f16 the largest finite one is stored: an infinite
// scale would turn the whole block into infinities and NaNs.
inline uint16_t f16_scale(float d) { return f32_to_f16(clamped(d, -65504.0f, 65504.0f)); }

// As f16_scale, but what is not zero does not become zero: integer factors make up for the rest.
inline uint16_t f16_factor(float d) {
    const uint16_t h = f16_scale(d);
    return d != 0 && (h & 0x7fff) == 0 ? static_cast<uint16_t>(h | 1) : h;
}

// Stores whole(v) for the n values v = value(x[i]) limited to lo..hi (a NaN becomes lo), less `base`.
template <int n, class Value, class Whole>
void store_codes(const float* x, float lo, float hi, int base, void* q, Value value, Whole whole) {
    const f32x4 least = f32x4{} + lo, most = f32x4{} + hi;
    for (int i = 0; i < n; i += 4) {
        f32x4 v;
        std::memcpy(&v, x + i, sizeof v);
        value(v);
        v = v > least ? v : least;
        v = v < most ? v : most;
        whole(v);
        const u8x4 bytes = __builtin_convertvector(__builtin_convertvector(v, i32x4) - base, u8x4);
        std::memcpy(static_cast<uint8_t*>(q) + i, &bytes, sizeof bytes);
    }
}

// Adds what makes truncation round halves away from zero; see round_away().
inline void away_from_zero(f32x4& v) {
    const f32x4 half = f32x4{} + 0x1.fffffep-2f;
    v += v < 0 ? -half : half;
}

// q[i] = floor(x[i] * inverse + offset), limited to 0..top: the rounding of the 32-element formats.
template <int n>
void floor_codes(const float* x, float inverse, float offset, int top, uint8_t* q) {
    store_codes<n>(
        x, 0, static_cast<float>(top), 0, q, [&](f32x4& v) { v = v * inverse + offset; }, [](f32x4&) {});
}

// q[i] = round((x[i] + shift) * inverse), limited to 0..top.
template <int n>
void offset_codes(const float* x, float shift, float inverse, int top, uint8_t* q) {
    store_codes<n>(
        x, 0, static_cast<float>(top), 0, q, [&](f32x4& v) { v = (v + shift) * inverse; },
        [](f32x4& v) { v += 0.5f; });
}

// q[i] = round(x[i] * inverse) - base, with the value limited to lo..hi before it is rounded, halves away
// from zero: codes of signed levels, as bytes (of either sign).
template <int n>
void signed_codes(const float* x, float inverse, int lo, int hi, int base, void* q) {
    store_codes<n>(
        x, static_cast<float>(lo), static_cast<float>(hi), base, q, [&](f32x4& v) { v *= inverse; },
        away_from_zero);
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
    for (int i = 0; i < n; i += 4) {
        f32x4 v;
        std::memcpy(&v, x + i, sizeof v);
        v *= inverse;
        i32x4 index = {};
        for (size_t k = 0; k < cuts; ++k) index -= v > f32x4{} + mid[k];  // true is -1
        const u8x4 bytes = __builtin_convertvector(index, u8x4);
        std::memcpy(q + i, &bytes, sizeof bytes);
    }
}

// Two 4-bit codes per byte: element j low and element j + n/2 high in byte j.
template <int n>
void pack_nibbles(const uint8_t* q, uint8_t* out) {
    for (int j = 0; j < n / 2; ++j) out[j] = static_cast<uint8_t>((q[j] & 15) | q[j + n / 2] << 4);
}

// Codes of n nibbles, the low ones first. fn(codes, i) is what becomes of the vector of them that begins with
// code i; what is written is not read again, since that would wait for the write. Vectors of bytes
// explicitly: compilers unroll a loop of sixteen before they would turn it into them.
template <int n, class Fn>
void unpack_nibbles(const uint8_t* in, int8_t* q, Fn fn) {
    constexpr int step = sizeof(u8x16);
    static_assert(n % (2 * step) == 0);
    for (int j = 0; j < n / 2; j += step) {
        u8x16 v;
        std::memcpy(&v, in + j, step);
        const u8x16 low = fn(v & 15, j), high = fn(v >> 4, j + n / 2);
        std::memcpy(q + j, &low, step);
        std::memcpy(q + j + n / 2, &high, step);
    }
}
template <int n>
void unpack_nibbles(const uint8_t* in, int8_t* q) {
    unpack_nibbles<n>(in, q, [](u8x16 codes, int) { return codes; });
}

}  // namespace nibble
