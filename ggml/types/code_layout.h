// What packed layouts keep of each format: the width of its codes, their zero and the kind of its scales.
// The layouts themselves belong to the backends (ggml/cpu/packed.h, ggml/cuda/tiles.h).
#pragma once

#include <array>

#include "ggml/types/list.h"

namespace nibble {

enum class ScaleKind : uint8_t {
    f16,     // one f16 per group of columns and row
    bf16,    // likewise: for scales beyond the range of f16
    f32,     // likewise
    factor,  // per 256 columns and row an f16 d, per group an integer s: the scale is d * s
};

// How a format with integer codes is packed. `zero` is subtracted from the stored codes (by the kernel,
// through the sum of the activations); tables hold what codes stand for, in units of 1 / table_scale.
struct CodeLayout {
    int bits = 0;
    int zero = 0;  // a power of two, or 0
    ScaleKind scales = ScaleKind::f16;
    bool is_signed = false;  // eight-bit codes around zero, and all tables
    bool table = false;
    float table_scale = 1;
    std::array<int8_t, 16> levels{};
    int factor_bits = 0;  // of each s, which has a sign if the format has no minima

    // Whether a code times its s fits a byte. Where both have a sign they reach further below zero than
    // above, and it is the code times -s.
    constexpr bool products_fit_bytes() const {
        if (factor_bits == 0 || table) return false;
        return zero > 0 ? zero << (factor_bits - 1) <= 128
                        : ((1 << bits) - 1) * ((1 << factor_bits) - 1) <= 127;
    }

    // Of the sizes of the numbers that are multiplied.
    constexpr int largest() const {
        if (!table) return is_signed ? 128 : (1 << bits) - 1;
        int most = 0;
        for (const int level : levels) most = level > most ? level : -level > most ? -level : most;
        return most;
    }
    // A power of two that makes a table's levels positive numbers of seven bits, or 0 where they are too far
    // apart for that.
    constexpr int table_zero() const {
        int zero = 1;
        while (zero < largest()) zero *= 2;
        return table && zero + largest() < 128 ? zero : 0;
    }
};

constexpr CodeLayout plain(int bits, int zero, int factor_bits = 0) {
    const ScaleKind scales = factor_bits ? ScaleKind::factor : ScaleKind::f16;
    return {bits, zero, scales, bits == 8, false, 1, {}, factor_bits};
}
constexpr CodeLayout lookup(const std::array<int8_t, 16>& levels, ScaleKind scales, float table_scale = 1,
                            int factor_bits = 0, int bits = 4) {
    return {bits, 0, scales, true, true, table_scale, levels, factor_bits};
}

// Levels that are whole multiples of a unit, in it.
constexpr std::array<int8_t, 16> in_units(const std::array<float, 16>& levels, float unit) {
    std::array<int8_t, 16> t{};
    for (size_t i = 0; i < 16; ++i) t[i] = static_cast<int8_t>(levels[i] / unit);
    return t;
}

// NF4 levels in units of 1 / 124.12, the unit between 1/127 and 1/90 that rounds them best: relative squared
// error 2.2e-5 on normally distributed weights, against 8.4e-3 of the format itself.
inline constexpr float nf4_unit = 124.12f;
inline constexpr std::array<int8_t, 16> nf4_int8 = [] {
    std::array<int8_t, 16> t{};
    for (size_t i = 0; i < 16; ++i) {
        const float v = nf4_levels[i] * nf4_unit;
        t[i] = static_cast<int8_t>(v < 0 ? v - 0.5f : v + 0.5f);
    }
    return t;
}();

// The layout of a format, by its name; bits == 0: decoded to f32 in the kernel instead.
template <class F>
constexpr CodeLayout code_layout() {
    using K = ScaleKind;
    switch (F::type) {
        case Type::q8_0:
            return plain(8, 0);
        case Type::q4_0:
            return plain(4, 8);
        case Type::q5_0:
            return plain(5, 16);
        case Type::q4_1:
            return plain(4, 0);
        case Type::q5_1:
            return plain(5, 0);
        case Type::q2_k:
            return plain(2, 0, 4);
        case Type::q3_k:
            return plain(3, 4, 6);
        case Type::q4_k:
            return plain(4, 0, 6);
        case Type::q5_k:
            return plain(5, 0, 6);
        case Type::q6_k:
            return plain(6, 32, 8);
        case Type::iq4_nl:
            return lookup(iq4_levels, K::f16);
        case Type::iq4_xs:
            return lookup(iq4_levels, K::factor, 1, 6);
        case Type::mxfp4:
            return lookup(e2m1_doubled, K::bf16);
        case Type::nvfp4:
            return lookup(e2m1_doubled, K::f16);
        case Type::nf4:
            return lookup(nf4_int8, K::f16, 1 / nf4_unit);
        case Type::nf4_dq:
            return lookup(nf4_int8, K::f32, 1 / nf4_unit);
        case Type::tq1_0:
        case Type::tq2_0:
        case Type::q1_0:
        case Type::q2_0:
            return plain(2, 1);
        case Type::iq2_xxs:
        case Type::iq2_xs:
        case Type::iq2_s:
            return lookup(in_units(iq2_levels, 0.125f), K::factor, 0.125f, 6, 3);
        case Type::iq3_xxs:
            return lookup(in_units(iq3_xxs_levels, 0.5f), K::factor, 0.5f, 6);
        case Type::iq3_s:
            return lookup(in_units(iq3_s_levels, 1), K::factor, 1, 6);
        case Type::iq1_s:
        case Type::iq1_m:
            return lookup(in_units(iq1_levels, 0.125f), K::factor, 0.125f, 6, 3);
        default:
            return {};
    }
}
template <class F>
inline constexpr CodeLayout layout_of = code_layout<F>();

// The integer s that d * s was made of; a damaged file's infinities and NaNs stay in d, whatever s is.
inline int factor_of(float scale, float d) {
    const float ratio = scale / d;
    return ratio >= -128 && ratio <= 127 ? static_cast<int>(__builtin_lrintf(ratio)) : 1;
}

}  // namespace nibble
