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
// [g][half][groups of the tile], and minima after the scales of each row.
//
// Supers are the f16 factors d (and dmin) of 256 columns: [256 columns][g][half][d, dmin]; or, for 16-bit
// values, one f32 per row: values are stored as f16 over a power of two that brings the row's largest below
// 2^15, so that bf16 and f32 sources lose neither range nor, down to 2^-29 of the largest, bits of a bf16.
struct TileFormat {
    int main = 0;                       // bits of a code in the first plane: 4, 8, or 16 for values
    int extra = 0;                      // upper bits: 0, 1 or 2
    int zero = 0;                       // subtracted from the code
    int group = 0;                      // columns that share a scale: 16, 32 or 64
    ScaleKind scales = ScaleKind::f16;  // f16, f32 or factor
    bool min = false;
    bool table = false;  // codes are looked up; neighbours in a byte, so that a byte gives two values
    bool operator==(const TileFormat&) const = default;

    constexpr bool real() const { return main == 16; }
    constexpr int groups() const { return real() ? 0 : 64 / group; }
    constexpr int scale_bytes() const {
        return scales == ScaleKind::factor ? 1 : scales == ScaleKind::f32 ? 4 : 2;
    }
    constexpr int words4() const { return main / 4; }  // 16-byte reads of codes per lane
    constexpr int extra_at() const { return 16 * 64 * main / 8; }
    constexpr int scales_at() const { return extra_at() + 16 * 64 * extra / 8; }
    constexpr int lane_scales() const { return real() ? 0 : 2 * groups() * scale_bytes() * (min ? 2 : 1); }
    constexpr int tile_bytes() const { return scales_at() + 8 * lane_scales(); }
    constexpr bool factor() const { return !real() && scales == ScaleKind::factor; }
    constexpr int lane_super() const { return factor() ? (min ? 8 : 4) : 0; }

    static constexpr int64_t tiles(int64_t k) { return (k + 63) / 64; }
    static constexpr int64_t supers(int64_t k) { return (k + 255) / 256; }
    constexpr int64_t supers_at(int64_t k) const { return tiles(k) * tile_bytes(); }
    // Bytes of a row block; a multiple of 32.
    constexpr int64_t block_bytes(int64_t k) const {
        return supers_at(k) + (real() ? 16 * 4 : supers(k) * 8 * lane_super());
    }
};

// Formats without integer codes of at most 8 bits (and those whose codes come from large grids) are decoded
// to f16 values when placed.
template <class F>
constexpr TileFormat tile_format() {
    constexpr CodeLayout c = code_layout<F>();
    TileFormat f;
    if constexpr (c.bits == 0) {
        f.main = 16;
    } else {
        f.main = c.bits == 8 ? 8 : 4;
        f.extra = c.bits > 4 && c.bits < 8 ? c.bits - 4 : 0;
        f.zero = c.bits == 8 ? 128 : c.zero;
        f.group = static_cast<int>(F::group);
        f.scales = c.scales == ScaleKind::bf16 ? ScaleKind::f32 : c.scales;
        f.min = F::dot == DotClass::scaled_int_min;
        f.table = c.table;
    }
    return f;
}

// A format as a number and back: nvcc cannot name a kernel after a struct.
constexpr uint32_t format_code(TileFormat f) {
    return static_cast<uint32_t>(f.main | f.extra << 5 | f.zero << 7 | f.group << 15 |
                                 static_cast<int>(f.scales) << 22 | f.min << 25 | f.table << 26);
}
constexpr TileFormat format_of(uint32_t c) {
    return {static_cast<int>(c & 31),
            static_cast<int>(c >> 5 & 3),
            static_cast<int>(c >> 7 & 255),
            static_cast<int>(c >> 15 & 127),
            static_cast<ScaleKind>(c >> 22 & 7),
            (c >> 25 & 1) != 0,
            (c >> 26 & 1) != 0};
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
