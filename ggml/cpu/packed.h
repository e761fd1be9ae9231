// The packed layout of weights: which formats have one, and where codes and scales lie in it.
// Written once at load (kernels/pack.inl), read by the matmul kernels of the same instruction set.
#pragma once

#include <array>

#include "ggml/types/list.h"

namespace nibble::cpu {

// Weight rows are taken in groups as many as the instruction set has 32-bit lanes; a lane is a row. The last
// group is filled up with zeros. A group is a run of spans, read from front to back; a span is
//
//   scales | minima | codes
//
// and covers `span` columns of every row of the group. Codes come in blocks of 32 columns, as bit planes:
// quad j = 0..7 of a block is the vector of columns 4j .. 4j+3, a byte each, of every row. Eight-bit codes
// are stored quad after quad. A plane of b < 8 bits holds 8/b quads per vector: quad j lies in vector
// j / (8/b) at bit b * (j mod 8/b) of each byte. Formats of 6, 5 and 3 bits have a plane of 4, 4 and 2 bits
// followed by one with the upper bits.
//
// Real formats have no scales: units of 32 bits (one f32, or two 16-bit columns) of every row in turn.
enum class ScaleKind : uint8_t {
    f16,     // one f16 per group of columns and row
    bf16,    // likewise: for scales beyond the range of f16
    f32,     // likewise
    factor,  // per 256 columns and row an f16 d, per group an int8 s: the scale is d * s
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
};

constexpr CodeLayout plain(int bits, int zero, ScaleKind scales = ScaleKind::f16) {
    return {bits, zero, scales, bits == 8, false, 1, {}};
}
constexpr CodeLayout lookup(const std::array<int8_t, 16>& levels, ScaleKind scales, float table_scale = 1) {
    return {4, 0, scales, true, true, table_scale, levels};
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
            return plain(2, 0, K::factor);
        case Type::q3_k:
            return plain(3, 4, K::factor);
        case Type::q4_k:
            return plain(4, 0, K::factor);
        case Type::q5_k:
            return plain(5, 0, K::factor);
        case Type::q6_k:
            return plain(6, 32, K::factor);
        case Type::iq4_nl:
            return lookup(iq4_levels, K::f16);
        case Type::iq4_xs:
            return lookup(iq4_levels, K::factor);
        case Type::mxfp4:
            return lookup(e2m1_doubled, K::bf16);
        case Type::nvfp4:
            return lookup(e2m1_doubled, K::f16);
        case Type::nf4:
            return lookup(nf4_int8, K::f16, 1 / nf4_unit);
        case Type::nf4_dq:
            return lookup(nf4_int8, K::f32, 1 / nf4_unit);
        default:
            return {};
    }
}

// Offsets of format F's packed spans for groups of `lanes` rows. All are multiples of 2 * lanes, so that
// vectors stay aligned when the tensor is.
template <class F, int lanes>
struct Packed {
    static constexpr CodeLayout codes = code_layout<F>();
    static constexpr bool has_min = F::dot == DotClass::scaled_int_min;
    static constexpr int64_t group = F::group;  // columns that share a scale
    static constexpr int halves = group == 16 ? 2 : 1;
    static constexpr int64_t pair = 2 * (group > 32 ? group : 32);  // two scales fill a vector
    static constexpr int64_t span = pair > F::block_len ? pair : F::block_len;
    static constexpr int64_t groups = span / group;
    static constexpr int64_t block_bytes = int64_t{codes.bits} * lanes * 4;
    static constexpr int64_t spans(int64_t k) { return (k + span - 1) / span; }

    static constexpr int64_t scale_bytes = codes.scales == ScaleKind::f32 ? 4 : 2;
    // factor: d, dmin (each padded to a vector together), then int8 per group
    static constexpr int64_t d_bytes = codes.scales == ScaleKind::factor ? 4 * lanes : 0;
    static constexpr int64_t per_scale = codes.scales == ScaleKind::factor ? lanes : scale_bytes * lanes;
    static constexpr int64_t scales_at = d_bytes;
    static constexpr int64_t mins_at = scales_at + groups * per_scale;
    static constexpr int64_t codes_at = mins_at + (has_min ? groups * per_scale : 0);
    static constexpr int64_t span_bytes = codes_at + span / 32 * block_bytes;

    static_assert(group % 32 == 0 || group == 16);
    static_assert(span % F::block_len == 0);
    static_assert(codes_at % (4 * lanes) == 0);
};

}  // namespace nibble::cpu
