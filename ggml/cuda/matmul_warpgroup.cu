// matmul for many rows on cards of generation 9.0: four warps multiply together, weights from registers by
// rows of x in shared memory (wgmma), which is the only way to their tensor cores' full rate.
#include "ggml/base/checked.h"
#include "ggml/cuda/product.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"
#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/matmul_row.inl"

// Elsewhere codes stay integers and scales are applied to the sums of groups. Here every weight becomes one
// f16, scale and minimum included (2^-11 of its size is lost, a hundredth of what its code lost): sums then
// stay in registers from the first column to the last, and the tensor cores need not wait for anything. So
// these are not the bits of the other products, but they too depend on the row and the weights alone.
//
// Per 64 columns of the weights a block of 256 x 128 results does 4 MFLOP in 1024 clocks, and its two
// warpgroups turn 16384 codes into fragments meanwhile.

// Rows of x as the tensor cores read them from shared memory. A tile is 64 columns of 128 rows, 128 bytes
// each, and lies in one piece: [tile of columns][row][128 bytes], in f16 times a power of two that is the
// row's own. Its 16-byte pieces are exchanged, number i with i ^ (row % 8), so that eight rows of a piece lie
// in all banks. Columns are in the order of the weights' fragments (tiles.h): of four neighbours in 16 the
// first two go to the first eight, the others to the last eight.
struct WarpgroupRows {
    std::byte* values;
    float* inverse;  // of the row's power of two
    int64_t padded;  // rows, to whole tiles
    static constexpr int rows = 128, row_bytes = 128, tile_bytes = rows * row_bytes;
    static constexpr bool has_sums = false;

    struct Column {
        std::byte* values;
        int64_t step;
        int swap;
        __device__ void put(int unit, Words2 w) const {
            std::byte* const tile = values + unit / 16 * step + unit % 4 * 4;
            const int piece = unit / 4 % 4 * 2;
#pragma unroll
            for (int i = 0; i < 2; ++i)
                *reinterpret_cast<uint32_t*>(tile + ((piece + i) ^ swap) * 16) = w.w[i];
        }
    };
    __device__ Column column(int64_t r) const {
        return {values + r * row_bytes, padded * row_bytes, static_cast<int>(r % 8)};
    }
};

int64_t padded_rows(int64_t rows) { return round_up(rows, int64_t{WarpgroupRows::rows}); }

WarpgroupRows warpgroup_rows(std::span<std::byte> memory, int64_t rows, int64_t cols) {
    const int64_t padded = padded_rows(rows),
                  bytes = TileFormat::tiles(cols) * padded * WarpgroupRows::row_bytes;
    return {memory.data(), reinterpret_cast<float*>(memory.data() + bytes), padded};
}

__global__ void prepare_warpgroup_kernel(View x, RowNorm norm, WarpgroupRows to) {
    const NormAhead ahead = norm_ahead(norm, x.cols);
    wait_for_previous();
    prepare_row(x, block_x(), norm, ahead, true, to, block_x(), reinterpret_cast<float*>(shared_memory()));
}

// A block's two warpgroups have `blocks` times 64 rows of the weights each, and the same 128 rows of x.
template <TileFormat f, int blocks>
struct WarpgroupShape {
    static constexpr int warpgroups = 2, threads = 128 * warpgroups, stages = 4;
    static constexpr int row_blocks = 4 * blocks * warpgroups;
    static constexpr size_t shared_bytes = table_bytes(f) + size_t{stages} * WarpgroupRows::tile_bytes;
    // Narrow ones share a multiprocessor.
    static constexpr int resident = blocks == 1 ? 2 : 1;
};

// A thread's copies of each stage, a sixteenth of its bytes.
struct RowCopies {
    static constexpr int threads = 256, turns = WarpgroupRows::tile_bytes / 16 / threads;
    const std::byte* from;
    int64_t step;
    uint32_t on = 0;  // rows that are there, by bit; the others become zeros

    __device__ RowCopies(const WarpgroupRows& x, int64_t first, int64_t rows)
        : from(x.values + first * x.row_bytes + thread_index() * 16), step(x.padded * x.row_bytes) {
        for (int n = 0; n < turns; ++n) {
            const int64_t row = first + (thread_index() + n * threads) * 16 / x.row_bytes;
            on |= static_cast<uint32_t>(row < rows) << n;
        }
    }
    __device__ void request(std::byte* stage) {
#pragma unroll
        for (int n = 0; n < turns; ++n)
            copy_async16(stage + (thread_index() + n * threads) * 16, from + n * threads * 16, on >> n & 1);
        from += step;
    }
};

// Scale (which = 0) or minimum (1) of a group as f16, twice.
template <TileFormat f>
__device__ uint32_t half2_scale(const LaneTile<f>& tile, int half, int group, int which) {
    if constexpr (f.scales == ScaleKind::f16) {
        const int i = (half * (f.min ? 2 : 1) + which) * f.groups() + group;
        return byte_perm(tile.scales[i / 2], 0, i % 2 ? 0x3232 : 0x1010);
    } else {
        return byte_perm(float_to_half(scale_of(tile, half, group, which)), 0, 0x1010);
    }
}

// The lane's fragments of a tile: weights as f16 each, apart from a factor that a row of 16-bit values has.
template <TileFormat f>
__device__ void weights_of(const LaneTile<f>& tile, const uint32_t* table, uint32_t (&a)[4][4]) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
        fragment(tile, s, table, a[s]);
        if constexpr (!f.real()) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t scale = half2_scale(tile, half, 16 * s / f.group, 0);
#pragma unroll
                for (int i = half; i < 4; i += 2)
                    if constexpr (f.min)
                        a[s][i] = half2_fma(a[s][i], scale, half2_scale(tile, half, 16 * s / f.group, 1));
                    else
                        a[s][i] = half2_mul(a[s][i], scale);
            }
        }
    }
}

// Block x: 128 rows of x; block y: 128 `blocks` rows of one of the weights, or, with a unit, 128 of both.
template <uint32_t code, int blocks>
__global__ void __launch_bounds__(256, (WarpgroupShape<format_of(code), blocks>::resident))
    warpgroup_kernel(ProductArgs args, WarpgroupRows x, UnitArgs unit) {
    if (!has_warpgroups()) return;
    constexpr TileFormat f = format_of(code);
    using S = WarpgroupShape<f, blocks>;
    constexpr int stages = S::stages;
    constexpr bool values = f.real();
    std::byte* const stage = shared_memory() + table_bytes(f);
    const uint32_t* table = nullptr;
    const bool paired = blocks == 2 && unit.on;
    int64_t first = int64_t{block_y()} * (paired ? S::row_blocks / 2 : S::row_blocks);
    const int which = paired ? 0 : segment_at(args, S::row_blocks, first);
    const auto segment_of = [&](int i) -> const Segment& { return args.segment[paired ? i : which]; };
    const int64_t k = args.x.cols, rows = args.x.rows, first_row = block_x() * WarpgroupRows::rows;
    const auto tiles = static_cast<int>(TileFormat::tiles(k));
    if constexpr (f.table) table = fill_table(args.table);

    // The warp's row blocks; those behind the last are read as the last.
    const auto block_of = [&](int i) {
        const int of_warpgroup = paired ? warp_index() / 4 : warp_index() / 4 * blocks + i;
        return first + of_warpgroup * 4 + warp_index() % 4;
    };
    const std::byte* weight[blocks];
    LaneTile<f> codes[blocks];
    const auto load = [&](int tile) {  // the last one again instead of one behind it
#pragma unroll
        for (int i = 0; i < blocks; ++i)
            load_tile<f>(tile_place<f>(weight[i], tiles, tile < tiles ? tile : tiles - 1), 0, codes[i]);
    };
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
        const Segment& s = segment_of(i);
        weight[i] = s.data + (block_of(i) < s.blocks ? block_of(i) : s.blocks - 1) * f.block_bytes(k);
    }
    load(0);
    wait_for_previous();
    RowCopies copies(x, first_row, rows);
    for (int t = 0; t < stages - 2; ++t) {
        if (t < tiles) copies.request(stage + t * WarpgroupRows::tile_bytes);
        copy_commit();
    }
    if constexpr (f.table) sync_block();

    // While the products of a tile run, the fragments of the next are made and its rows of x come.
    Sums<16> sums[blocks] = {};
    uint32_t a[2][blocks][4][4];
    const auto make = [&](uint32_t(&fragments)[blocks][4][4]) {
#pragma unroll
        for (int i = 0; i < blocks; ++i) weights_of<f>(codes[i], table, fragments[i]);
    };
    const auto multiply = [&]<int side>(int t) {
        if constexpr (!values) {
            make(a[side]);
            load(t + 1);
        }
        copy_wait<stages - 3>();
        publish_shared();
        sync_block();
        // Every warp has waited for the products that read this stage, two tiles ago.
        if (t + stages - 2 < tiles)
            copies.request(stage + (t + stages - 2) % stages * WarpgroupRows::tile_bytes);
        copy_commit();
        warpgroup_begin();
#pragma unroll
        for (int step = 0; step < 4; ++step)
#pragma unroll
            for (int i = 0; i < blocks; ++i)
                warpgroup_multiply128(sums[i].d, a[side][i][step],
                                      stage + t % stages * WarpgroupRows::tile_bytes, step);
        warpgroup_commit();
        warpgroup_wait<1>();
        // Values are fragments as they are, so they come when the products before have left the registers.
        if constexpr (values) {
            load(t + 1);
            make(a[1 - side]);
        }
    };
    if constexpr (values) make(a[0]);
    // In pairs without a condition: with one, ptxas would let products wait for each other.
    int t = 0;
    for (; t + 1 < tiles; t += 2) {
        multiply.template operator()<0>(t);
        multiply.template operator()<1>(t + 1);
    }
    warpgroup_wait<0>();
    if (t < tiles) multiply.template operator()<0>(t);
    warpgroup_wait<0>();
    copy_wait<0>();

#pragma unroll
    for (int i = 0; i < blocks; ++i) warpgroup_results<16>(sums[i].d);
    if constexpr (blocks == 2)
        if (paired) {
            if (block_of(0) < segment_of(0).blocks)
                store_gated_fragments<f>(args, unit, block_of(0), first_row, x.inverse, sums);
            return;
        }
#pragma unroll
    for (int i = 0; i < blocks; ++i)
        if (block_of(i) < segment_of(i).blocks)
            store_fragments<f>(args, segment_of(i), block_of(i), first_row, x.inverse, sums[i]);
}

template <TileFormat f, int blocks>
Dims dims_of(const ProductArgs& a, const UnitArgs& unit) {
    using S = WarpgroupShape<f, blocks>;
    int64_t groups = 0;
    for (int i = 0; i < a.segments; ++i) groups += blocks_for(a.segment[i].blocks, S::row_blocks);
    if (unit.on) groups = blocks_for(a.segment[0].blocks, S::row_blocks / 2);
    return {blocks_for(a.x.rows, WarpgroupRows::rows), static_cast<int32_t>(groups), 1, S::threads,
            S::shared_bytes};
}

template <TileFormat f, int blocks>
void launch_blocks(const Exec& e, const ProductArgs& a, const WarpgroupRows& x, const UnitArgs& unit) {
    launch(warpgroup_kernel<format_code(f), blocks>, dims_of<f, blocks>(a, unit), *e.stream, a, x, unit);
}

// How long a launch takes, in blocks of 128 x 128 results of a multiprocessor: its last turn is a whole one.
template <TileFormat f, int blocks>
int64_t turns(const Exec& e, const ProductArgs& a, const UnitArgs& unit) {
    const Dims d = dims_of<f, blocks>(a, unit);
    return blocks * blocks_for(d.x * d.y, e.card->multiprocessors);
}

}  // namespace

size_t warpgroup_scratch(int64_t rows, int64_t cols) {
    const int64_t tiles = TileFormat::tiles(cols), padded = padded_rows(rows);
    return static_cast<size_t>(padded *
                               (tiles * WarpgroupRows::row_bytes + static_cast<int64_t>(sizeof(float))));
}

void prepare_warpgroup(const Exec& e, const ProductArgs& a, std::span<std::byte> scratch) {
    launch(prepare_warpgroup_kernel, Dims{a.x.rows, 1, 1, 256, 8 * sizeof(float)}, *e.stream, a.x, a.norm,
           warpgroup_rows(scratch, a.x.rows, a.x.cols));
}

void multiply_warpgroup(const Exec& e, const ProductArgs& a, Type weights, std::span<std::byte> scratch,
                        const UnitArgs& unit) {
    const WarpgroupRows x = warpgroup_rows(scratch, a.x.rows, a.x.cols);
    visit_tile_format(weights, [&]<TileFormat f>() {
        if (!unit.on && turns<f, 1>(e, a, unit) < turns<f, 2>(e, a, unit))
            launch_blocks<f, 1>(e, a, x, unit);
        else
            launch_blocks<f, 2>(e, a, x, unit);
    });
}

}  // namespace nibble::cuda
