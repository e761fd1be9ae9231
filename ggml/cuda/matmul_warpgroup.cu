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

// Two warpgroups have the sums of two weights, of the same rows by the same 256 rows of x. They exchange half
// of them, so that each has those of both for 128 rows of x. `memory`: 64 KiB that nobody needs any more.
__device__ void exchange_halves(const Sums<32>& sums, std::byte* memory, Sums<16> (&both)[2]) {
    const bool second = warp_index() >= 4;
    auto* const given = reinterpret_cast<Words4*>(memory);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
        Words4 w;
#pragma unroll
        for (int i = 0; i < 4; ++i) w.w[i] = float_bits(second ? sums.d[j][i] : sums.d[16 + j][i]);
        given[j * warpgroup_threads + thread_index()] = w;
    }
    sync_block();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
        const Words4 w = given[j * warpgroup_threads + (thread_index() ^ 128)];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float own = second ? sums.d[16 + j][i] : sums.d[j][i], other = bits_float(w.w[i]);
            both[0].d[j][i] = second ? other : own;
            both[1].d[j][i] = second ? own : other;
        }
    }
}

// Block x: 128 `halves` rows of x; block y: 128 rows of one of the weights, or, with a unit, 64 of both.
template <uint32_t code, int halves>
__global__ void __launch_bounds__(warpgroup_threads, 1)
    warpgroup_kernel(ProductArgs args, WarpgroupRows x, UnitArgs unit) {
    if (!has_warpgroups()) return;
    constexpr TileFormat f = format_of(code);
    using S = WarpgroupShape<halves>;
    std::byte* const memory = shared_memory() + table_bytes(f);
    uint32_t table = 0;
    const bool paired = halves == 2 && unit.on;
    int64_t first = int64_t{block_y()} * (paired ? S::row_blocks / 2 : S::row_blocks);
    const int which = paired ? warp_index() / 4 : segment_at(args, S::row_blocks, first);
    const Segment& s = args.segment[which];
    const int64_t k = args.x.cols, rows = args.x.rows, first_row = block_x() * S::columns;

    // The warp's row block; one behind the last is read as the last.
    const int64_t block = first + warp_index() % (paired ? 4 : 8);
    WarpgroupProduct<f, halves> product(s.data + (block < s.blocks ? block : s.blocks - 1) * f.block_bytes(k),
                                        k);
    if constexpr (f.table) table = fill_table(args.table);
    const BlockRows<halves> block_rows{memory, x, first_row};
    block_rows.multiply(product, table);
    sync_block();

    if constexpr (halves == 2)
        if (paired) {
            Sums<16> both[2];
            exchange_halves(product.sums, memory, both);
            const int64_t mine = first_row + warp_index() / 4 * WarpgroupRows::rows;
            if (block < s.blocks && mine < rows)
                store_gated_fragments<f>(args, unit, block, mine, block_rows.inverse(), both);
            return;
        }
    if (block < s.blocks) store_fragments<f>(args, s, block, first_row, block_rows.inverse(), product.sums);
}

template <TileFormat f, int halves>
Dims dims_of(const ProductArgs& a, const UnitArgs& unit) {
    using S = WarpgroupShape<halves>;
    int64_t groups = 0;
    for (int i = 0; i < a.segments; ++i) groups += blocks_for(a.segment[i].blocks, S::row_blocks);
    if (unit.on) groups = blocks_for(a.segment[0].blocks, S::row_blocks / 2);
    return {blocks_for(a.x.rows, S::columns), static_cast<int32_t>(groups), 1, warpgroup_threads,
            table_bytes(f) + BlockRows<halves>::shared_bytes};
}

template <TileFormat f, int halves>
void launch_blocks(const Exec& e, const ProductArgs& a, const WarpgroupRows& x, const UnitArgs& unit) {
    launch(warpgroup_kernel<format_code(f), halves>, dims_of<f, halves>(a, unit), *e.stream, a, x, unit);
}

// How long a launch takes, in blocks of 128 x 128 results of a multiprocessor: its last turn is a whole one.
template <TileFormat f, int halves>
int64_t turns(const Exec& e, const ProductArgs& a, const UnitArgs& unit) {
    const Dims d = dims_of<f, halves>(a, unit);
    return halves * blocks_for(d.x * d.y, e.card->multiprocessors);
}

}  // namespace

size_t warpgroup_scratch(int64_t rows, int64_t cols) { return rows_bytes(padded_rows(rows), cols); }

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
