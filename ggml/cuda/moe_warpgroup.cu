// moe_matmul for many rows on cards of generation 9.0, by warpgroups (warpgroup.inl): 128 pairs of an expert
// at a time, whose rows of x are gathered on their way into shared memory.
#include <algorithm>

#include "ggml/base/checked.h"
#include "ggml/cuda/moe_product.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/moe_inputs.inl"
#include "ggml/cuda/warpgroup.inl"

constexpr int tile_pairs = WarpgroupRows::rows;

// Pairs `from` .. `to` of the list, at most tile_pairs of them, are one expert's.
struct PairTile {
    int expert, from, to;
};

// The index-th tile of a step; called by whole warps.
__device__ bool find_tile(const Pairs& pairs, int index, PairTile& tile) {
    const int active = *pairs.count;
    for (int base = 0; base < active; base += 32) {
        const bool on = base + lane() < active;
        const int expert = pairs.active[on ? base + lane() : base];
        const int first = pairs.first[expert], last = pairs.first[expert + 1];
        const int tiles = on ? (last - first + tile_pairs - 1) / tile_pairs : 0;
        const int end = warp_sum_up_to(tiles), all = shuffle(end, 31);
        if (index >= all) {
            index -= all;
            continue;
        }
        const int owner = warp_max(index < end && index >= end - tiles ? lane() : 0);
        const int of_expert = index - (shuffle(end, owner) - shuffle(tiles, owner));
        const int from = shuffle(first, owner) + of_expert * tile_pairs, to = shuffle(last, owner);
        tile = {shuffle(expert, owner), from, to < from + tile_pairs ? to : from + tile_pairs};
        return true;
    }
    return false;
}

// A thread's copies of each stage, from the rows that its pairs name.
struct GatheredRows {
    static constexpr int turns = WarpgroupRows::tile_bytes / 16 / warpgroup_threads,
                         row_pieces = WarpgroupRows::row_bytes / 16;
    const std::byte* values;
    int64_t step;
    uint32_t offset[turns];
    uint32_t on = 0;  // pairs that are there, by bit; the others become zeros

    __device__ GatheredRows(const MoeProduct& a, const WarpgroupRows& x, const PairTile& tile)
        : values(x.values), step(x.padded * x.row_bytes) {
        const int piece = thread_index() % row_pieces;
#pragma unroll
        for (int n = 0; n < turns; ++n) {
            const int place = (thread_index() + n * warpgroup_threads) / row_pieces, i = tile.from + place;
            const bool there = i < tile.to;
            const int64_t row = a.input(a.pairs.list[there ? i : tile.from]);
            // A piece lies where its row's number puts it, here and there.
            const auto from = (piece ^ place % 8) ^ static_cast<int>(row % 8);
            offset[n] = static_cast<uint32_t>(row * x.row_bytes + from * 16);
            on |= static_cast<uint32_t>(there) << n;
        }
    }
    __device__ void operator()(std::byte* stage) {
#pragma unroll
        for (int n = 0; n < turns; ++n)
            copy_async16(stage + (thread_index() + n * warpgroup_threads) * 16, values + offset[n],
                         on >> n & 1);
        values += step;
    }
};

// Where the results of a pair go, and what scales them.
struct PairColumn {
    float* out;  // of the expert's first row; null where there is no pair
    float scale;
};

// Block x: 128 rows of an expert's matrix; y: tiles of pairs, and some that are none; z: the weight.
template <uint32_t code>
__global__ void __launch_bounds__(warpgroup_threads, 2) moe_warpgroup_kernel(MoeProduct a, WarpgroupRows x) {
    if (!has_warpgroups()) return;
    constexpr TileFormat f = format_of(code);
    std::byte* const stages = shared_memory() + table_bytes(f);
    uint32_t table = 0;
    wait_for_previous();
    PairTile tile;
    if (!find_tile(a.pairs, block_y(), tile)) return;
    const int which = a.first_weight + block_z();
    const int64_t blocks = a.rows / 16, block = block_x() * WarpgroupShape<1>::row_blocks + warp_index();
    const std::byte* const weight =
        a.weight[which] +
        (tile.expert * blocks + (block < blocks ? block : blocks - 1)) * f.block_bytes(a.cols);
    WarpgroupProduct<f, 1, 1> product(weight, a.cols);
    if constexpr (f.table) table = fill_table(a.table);
    if constexpr (f.table) sync_block();
    ThreadCopies<GatheredRows> copies(stages, {a, x, tile});
    copies.begin(product.tiles());
    product.multiply(copies, table);

    sync_block();  // the stages are free now
    auto* const columns = reinterpret_cast<PairColumn*>(stages);
    if (const int i = tile.from + thread_index(); thread_index() < tile_pairs) {
        const bool there = i < tile.to;
        const int pair = a.pairs.list[there ? i : tile.from];
        columns[thread_index()] = {there ? a.results(which, pair) : nullptr, x.inverse[a.input(pair)]};
    }
    sync_block();
    if (block >= blocks) return;
    const int64_t row = 16 * block + lane() / 4;
    float factor[2], bias[2] = {};
    for (int half = 0; half < 2; ++half) {
        factor[half] = row_factor<f>(weight, a.cols, lane() / 4 + 8 * half);
        if (a.bias[which]) bias[half] = a.bias[which].row(0)[int64_t{tile.expert} * a.rows + row + 8 * half];
    }
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const PairColumn column = columns[8 * j + lane() % 4 * 2 + c];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float sum = product.sums.d[j][2 * half + c] * column.scale * factor[half];
                if (a.bias[which]) sum += bias[half];
                if (column.out) column.out[row + 8 * half] = sum;
            }
        }
}

}  // namespace

// A tile of 128 pairs takes about as long as 64 of them would take otherwise, 32 at a time.
bool moe_warpgroups_apply(const Exec& e, const MoeProduct& a) {
    const int64_t pairs = a.x.rows * a.p.n_used;
    return warpgroups_apply(e, a.x.rows) && pairs >= int64_t{64} * a.p.n_experts &&
           a.x.rows * a.per_row * WarpgroupRows::row_bytes <= INT32_MAX;
}

void prepare_moe_warpgroup(const Exec& e, const MoeProduct& a, std::span<std::byte> scratch) {
    const int64_t rows = a.x.rows * a.per_row;
    prepare_inputs(e, a, warpgroup_rows(scratch, rows, a.cols));
}

void multiply_moe_warpgroup(const Exec& e, const MoeProduct& a, int32_t n_weights, Type weights,
                            std::span<std::byte> scratch) {
    const int64_t pairs = a.x.rows * a.p.n_used;
    const WarpgroupRows x = warpgroup_rows(scratch, a.x.rows * a.per_row, a.cols);
    // Each expert may leave a tile that is not full.
    const auto tiles = static_cast<int32_t>(pairs / tile_pairs + std::min<int64_t>(pairs, a.p.n_experts));
    visit_tile_format(weights, [&]<TileFormat f>() {
        using S = WarpgroupShape<1>;
        launch(moe_warpgroup_kernel<format_code(f)>,
               Dims{blocks_for(a.rows / 16, S::row_blocks), tiles, n_weights, warpgroup_threads,
                    table_bytes(f) + ThreadCopies<GatheredRows>::shared_bytes},
               *e.stream, a, x);
    });
}

}  // namespace nibble::cuda
