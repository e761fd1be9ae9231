// The packed layout of weights: which formats have one, and where codes and scales lie in it.
// Written once at load (kernels/pack.inl), read by the matmul kernels of the same instruction set.
#pragma once

#include <type_traits>
#include <utility>

#include "ggml/types/code_layout.h"

namespace nibble::cpu {

// Weight rows are taken in groups as many as the instruction set has 32-bit lanes; a lane is a row. The last
// group is filled up with zeros. A group is a run of spans, read from front to back; a span is
//
//   scales | minima | codes
//
// and covers `span` columns of every row of the group. Codes come in blocks of 32 columns: quad j = 0..7 of a
// block is the vector of columns 4j .. 4j+3, a byte each, of every row. Codes of b bits take b vectors.
// Vector i has the whole codes of 8/b quads, from quad i * (8/b) on and from the lowest bits up. Where b is
// no power of two, the last quads' codes lie in the bits left over, those of vector 0 first, one code behind
// the other (code_piece()): to put few such codes together costs less than a bit or two of every code.
//
// Larger groups than 64 have their scale several times. Scales are numbers, or integers of the groups times a
// number d of the row. Integers and d may have changed their signs, where so products of integers and codes
// fit bytes (CodeLayout::products_fit_bytes); a row's integers of both halves of a block may be neighbours.
//
// Real formats have no scales: units of 32 bits (one f32, or two 16-bit columns) of every row in turn.

// Offsets of format F's packed spans for groups of `lanes` rows. All are multiples of 2 * lanes, so that
// vectors stay aligned when the tensor is.
template <class F, int lanes>
struct Packed {
    static constexpr CodeLayout codes = code_layout<F>();
    static constexpr bool has_min = F::dot == DotClass::scaled_int_min;
    static constexpr int64_t group = F::group < 64 ? F::group : 64;  // columns that share a scale
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

// Bits of a code that lie side by side: n from bit `at` of the vector's bytes on.
struct CodePiece {
    int vector, at, n;
};
// Those of a code of quad j that begin with its bit `to`.
constexpr CodePiece code_piece(int bits, int j, int to) {
    const int whole = 8 / bits, spare = 8 % bits;  // codes and bits of a byte
    if (j < whole * bits) return {j / whole, bits * (j % whole), bits};
    const int place = (j - whole * bits) * bits + to, left = spare - place % spare;
    return {place / spare, 8 - left, left < bits - to ? left : bits - to};
}

// Whether the same kernels read both formats' packed weights: levels, and with integer scales their unit, are
// known when they run. Where sums are of 16 bits, large levels would cost small ones something.
template <bool short_sums, class F, class Other>
constexpr bool packed_alike() {
    if constexpr (code_layout<Other>().bits == 0) {
        return false;
    } else {
        using A = Packed<F, 16>;
        using B = Packed<Other, 16>;
        constexpr CodeLayout a = A::codes, b = B::codes;
        return a.bits == b.bits && a.zero == b.zero && a.scales == b.scales && a.is_signed == b.is_signed &&
               a.table == b.table && a.factor_bits == b.factor_bits &&
               (a.table_scale == b.table_scale || a.scales == ScaleKind::factor) &&
               A::has_min == B::has_min && A::group == B::group && A::span == B::span &&
               a.largest() <= b.largest() && (!short_sums || (a.table_zero() > 0) == (b.table_zero() > 0));
    }
}

// The first of the list whose kernels a format has.
template <bool short_sums, class F, class First, class... Rest>
constexpr auto kernel_format(FormatList<First, Rest...> /*all*/) {
    if constexpr (packed_alike<short_sums, F, First>())
        return std::type_identity<First>{};
    else
        return kernel_format<short_sums, F>(FormatList<Rest...>{});
}

// Calls fn.operator()<Format>() for the format of kernels that read this type's integer codes, if it has any.
template <bool short_sums, class Fn>
void visit_codes(Type type, Fn&& fn) {
    visit_format(type, [&]<class F>() {
        if constexpr (code_layout<F>().bits > 0)
            fn.template operator()<typename decltype(kernel_format<short_sums, F>(Formats{}))::type>();
    });
}

}  // namespace nibble::cpu
