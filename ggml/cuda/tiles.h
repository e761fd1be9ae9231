// The layout of weights on the GPU: tiles of 16 rows x 64 columns in the order of tensor-core fragments.
// Written on the host when a weight is placed (tiles_pack.cpp), read once per product by matmul.inl.
#pragma once

#include "ggml/base/result.h"
#include "ggml/program/tensor.h"
#include "ggml/types/code_layout.h"

namespace nibble::cuda {

// A weight is a run of row blocks, one per 16 rows (the last filled up with zeros):
//
//   tile 0 | tile 1 | ... | supers
//
// A tile covers 64 columns (the last filled up) as four steps of 16; a step is one mma instruction. Lane l,
// with g = l / 4 and t = l % 4, owns in step s the columns 16 s + 4 t + {0, 1, 2, 3} of the rows g and g + 8:
// eight codes c[half][i], half 0 for row g. They are the lane's fragment a[4] (device.h) with the columns in
// another order, which a product does not notice as long as the activations follow it:
// a[0] = c[0][0..1], a[1] = c[1][0..1], a[2] = c[0][2..3], a[3] = c[1][2..3]. A tile is
//
//   codes | upper bits | scales
//
// Codes, 16 bytes per lane at a time, lane after lane, so that a warp reads 512 bytes in a row: 16-bit values
// take a step per turn, 8-bit codes two steps and 4-bit codes all four (a word per step). Upper bits of 5 and
// 6-bit codes follow, 4 or 8 bytes per lane. Formats of fewer than 4 bits take 4. Then come the scales,
// [g][half][groups of the tile], and minima after the scales of each row: f16, or a byte to be multiplied by
// d (dmin), an f16 of 256 columns; these lie behind the tiles, [256 columns][g][half][d, dmin]. Bytes are
// integers with 128 added or, beside minima, without a sign and in the upper bits of the byte.
//
// A kernel makes one f16 of a weight: its value, or table value or code times scale plus minimum. For all of
// these to be normal numbers with all their bits a row has its own unit, a power of two, and the numbers are
// stored in it; what it is worth is the row's factor, an f32 behind all else. In this unit
//   values  are below 2^15: bf16 and f32 sources lose neither range nor, down to 2^-29 of the largest, bits
//   scales  are below 2^15, or 2^8 where table values are multiplied
//   weights are 2^-24 of scale times code, where codes are not looked up, and 2^-20 of it for codes of 4 to 6
//           bits in the rows g + 8: codes lie in the low or the upper bits of a half and are multiplied as
//           they are, as numbers below the normal ones
struct TileFormat {
    int main = 0;         // bits of a code in the first plane: 4, 8, or 16 for values
    int extra = 0;        // upper bits: 0, 1 or 2
    int zero = 0;         // subtracted from the code
    int group = 0;        // columns that share a scale: 16, 32 or 64
    int factor_bits = 0;  // of bytes that scales are, times an f16 of 256 columns; 0: scales are f16
    bool min = false;
    bool table = false;  // codes are looked up; neighbours in a byte, so that a byte gives two values
    bool operator==(const TileFormat&) const = default;

    constexpr bool real() const { return main == 16; }
    constexpr int groups() const { return real() ? 0 : 64 / group; }
    constexpr int scale_bytes() const { return factor() ? 1 : 2; }
    constexpr int words4() const { return main / 4; }  // 16-byte reads of codes per lane
    constexpr int extra_at() const { return 16 * 64 * main / 8; }
    // Where the upper bits of fragment a[i] of step s are: their word of the lane, and in each half of it.
    constexpr int extra_word(int s) const { return extra == 2 ? s / 2 : 0; }
    constexpr int extra_bit(int s, int i) const {
        const int step = extra == 2 ? 8 * (s % 2) : 8 * (s / 2) + 2 * (s % 2);
        return step + i / 2 * extra + i % 2 * 4;
    }
    constexpr int scales_at() const { return extra_at() + 16 * 64 * extra / 8; }
    constexpr int lane_scales() const { return real() ? 0 : 2 * groups() * scale_bytes() * (min ? 2 : 1); }
    constexpr int tile_bytes() const { return scales_at() + 8 * lane_scales(); }
    constexpr bool factor() const { return factor_bits != 0; }
    constexpr int lane_super() const { return !factor() ? 0 : min ? 8 : 4; }

    static constexpr int64_t tiles(int64_t k) { return (k + 63) / 64; }
    static constexpr int64_t supers(int64_t k) { return (k + 255) / 256; }
    constexpr int64_t supers_at(int64_t k) const { return tiles(k) * tile_bytes(); }
    constexpr int64_t factors_at(int64_t k) const { return supers_at(k) + supers(k) * 8 * lane_super(); }
    // Bytes of a row block; a multiple of 32.
    constexpr int64_t block_bytes(int64_t k) const { return factors_at(k) + 16 * 4; }
};

// Formats without integer codes of at most 8 bits, and ternary ones (codes around one), are decoded to f16
// values when placed. Codes of a table in groups of 16 have f16 scales, one kind of kernels for all of them.
template <class F>
constexpr TileFormat tile_format() {
    constexpr CodeLayout c = code_layout<F>();
    TileFormat f;
    if constexpr (c.bits == 0 || c.zero == 1) {
        f.main = 16;
    } else {
        f.main = c.bits == 8 ? 8 : 4;
        f.extra = c.bits > 4 && c.bits < 8 ? c.bits - 4 : 0;
        f.zero = c.bits == 8 ? 128 : c.zero;
        f.group = static_cast<int>(F::group);
        f.factor_bits = c.table && f.group == 16 ? 0 : c.factor_bits;
        f.min = F::dot == DotClass::scaled_int_min;
        f.table = c.table;
    }
    return f;
}

// A format as a number and back: nvcc cannot name a kernel after a struct.
constexpr uint32_t format_code(TileFormat f) {
    return static_cast<uint32_t>(f.main | f.extra << 5 | f.zero << 7 | f.group << 15 | f.factor_bits << 22 |
                                 f.min << 26 | f.table << 27);
}
constexpr TileFormat format_of(uint32_t c) {
    return {static_cast<int>(c & 31),
            static_cast<int>(c >> 5 & 3),
            static_cast<int>(c >> 7 & 255),
            static_cast<int>(c >> 15 & 127),
            static_cast<int>(c >> 22 & 15),
            (c >> 26 & 1) != 0,
            (c >> 27 & 1) != 0};
}

// The formats of kernels, each once however many types share it.
template <class Fn>
bool visit_tile_format(Type type, Fn&& fn) {
    return visit_format(type, [&]<class F>() {
        static_assert(format_of(format_code(tile_format<F>())) == tile_format<F>());
        fn.template operator()<tile_format<F>()>();
    });
}

// Whether weights of the type are placed as tiles; f32 stays in rows.
bool has_tiles(Type type);
TileFormat tiles_of(Type type);

// What 4-bit codes stand for, where they are looked up.
struct TileTable {
    float level[16] = {};
};
TileTable table_of(Type type);

// Row block `block` (16 rows from 16 * block) of a weight in file layout. `out` has block_bytes(w.cols).
void pack_tiles(const Tensor& w, int64_t block, std::byte* out);

}  // namespace nibble::cuda
