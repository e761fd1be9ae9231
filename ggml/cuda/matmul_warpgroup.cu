// matmul for many rows on cards of generation 9.0, by warpgroups (warpgroup.inl).
// A row's result depends, to the last bit, on that row and the shape of the weight alone.
#include "ggml/base/checked.h"
#include "ggml/cuda/product.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"
#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/matmul_row.inl"
#include "ggml/cuda/warpgroup.inl"

// Block x: 128 rows of x; block y: 128 `blocks` rows of one of the weights, or, with a unit, 128 of both.
template <uint32_t code, int blocks>
__global__ void __launch_bounds__(warpgroup_threads, (WarpgroupShape<format_of(code), blocks>::resident))
    warpgroup_kernel(ProductArgs args, WarpgroupRows x, UnitArgs unit) {
    if (!has_warpgroups()) return;
    constexpr TileFormat f = format_of(code);
    using S = WarpgroupShape<f, blocks>;
    std::byte* const stages = shared_memory() + table_bytes(f);
    uint32_t table = 0;
    const bool paired = blocks == 2 && unit.on;
    int64_t first = int64_t{block_y()} * (paired ? S::row_blocks / 2 : S::row_blocks);
    const int which = paired ? 0 : segment_at(args, S::row_blocks, first);
    const auto segment_of = [&](int i) -> const Segment& { return args.segment[paired ? i : which]; };
    const int64_t k = args.x.cols, rows = args.x.rows, first_row = block_x() * WarpgroupRows::rows;

    // The warp's row blocks; those behind the last are read as the last.
    const auto block_of = [&](int i) {
        const int of_warpgroup = paired ? warp_index() / 4 : warp_index() / 4 * blocks + i;
        return first + of_warpgroup * 4 + warp_index() % 4;
    };
    const std::byte* weight[blocks];
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
        const Segment& s = segment_of(i);
        weight[i] = s.data + (block_of(i) < s.blocks ? block_of(i) : s.blocks - 1) * f.block_bytes(k);
    }
    WarpgroupProduct<f, blocks> product(weight, k);
    if constexpr (f.table) table = fill_table(args.table);
    wait_for_previous();
    RowCopies copies(x, first_row, rows);
    product.multiply(copies, stages, table);
    const auto& sums = product.sums;

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
    return {blocks_for(a.x.rows, WarpgroupRows::rows), static_cast<int32_t>(groups), 1, warpgroup_threads,
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
    return static_cast<size_t>(warpgroup_value_bytes(rows, cols)) +
           static_cast<size_t>(padded_rows(rows)) * sizeof(float);
}

void prepare_warpgroup(const Exec& e, const ProductArgs& a, std::span<std::byte> scratch) {
    prepare_rows(e, a, warpgroup_rows(scratch, a.x.rows, a.x.cols));
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
