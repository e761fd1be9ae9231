// matmul for many rows on cards of generation 9.0 by weights of several types in one launch, where a launch
// for each would leave multiprocessors idle: few of them have enough rows to fill a card. The bits are those
// of matmul_warpgroup.cu.
#include <algorithm>

#include "ggml/base/checked.h"
#include "ggml/cuda/product.h"
#include "ggml/cuda/tile_codes.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"
#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/matmul_row.inl"
#include "ggml/cuda/warpgroup.inl"

// Of the weights.
struct MixedCodes {
    uint32_t code[max_matmul_weights];
};

constexpr int mixed_halves = 2;
using MixedRows = BlockRows<mixed_halves>;
using MixedShape = WarpgroupShape<mixed_halves>;

// Block x: 256 rows of x; block y: 128 rows of one of the weights.
__global__ void __launch_bounds__(warpgroup_threads, 1)
    mixed_kernel(ProductArgs args, MixedCodes codes, WarpgroupRows x) {
    if (!has_warpgroups()) return;
    int64_t first = int64_t{block_y()} * MixedShape::row_blocks;
    const int which = segment_at(args, MixedShape::row_blocks, first);
    const Segment& s = args.segment[which];
    const int64_t k = args.x.cols, first_row = block_x() * MixedShape::columns, block = first + warp_index();
    const MixedRows block_rows{shared_memory(), x, first_row};
    int64_t block_bytes = 0;
    Sums<16 * mixed_halves> sums;
    with_format<codes_without_table>(codes.code[which], [&]<uint32_t code>() {
        constexpr TileFormat f = format_of(code);
        block_bytes = f.block_bytes(k);
        WarpgroupProduct<f, mixed_halves> product(
            s.data + (block < s.blocks ? block : s.blocks - 1) * block_bytes, k);
        block_rows.multiply(product, 0);
        sums = product.sums;
    });
    sync_block();
    if (block < s.blocks) store_fragments(args, s, block_bytes, block, first_row, block_rows.inverse(), sums);
}

}  // namespace

// Where the rows are few, narrower blocks for each type in turn may fill the card better: they take one unit
// of time, these two.
bool mixes_warpgroup(const Exec& e, const ProductArgs& a, std::span<const Type> weights) {
    const int64_t at_once = e.card->multiprocessors, wide = blocks_for(a.x.rows, MixedShape::columns),
                  narrow = blocks_for(a.x.rows, WarpgroupRows::rows);
    int64_t together = 0, apart = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
        if (!codes_without_table.has(format_code(tiles_of(weights[i])))) return false;
        const int64_t groups = blocks_for(a.segment[i].blocks, MixedShape::row_blocks);
        together += groups;
        apart +=
            std::min(2 * blocks_for(wide * groups, at_once), int64_t{blocks_for(narrow * groups, at_once)});
    }
    return 2 * blocks_for(wide * together, at_once) <= apart;
}

void multiply_mixed_warpgroup(const Exec& e, const ProductArgs& a, std::span<const Type> weights,
                              std::span<std::byte> scratch) {
    MixedCodes codes{};
    int64_t groups = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
        codes.code[i] = format_code(tiles_of(weights[i]));
        groups += blocks_for(a.segment[i].blocks, MixedShape::row_blocks);
    }
    const Dims dims{blocks_for(a.x.rows, MixedShape::columns), static_cast<int32_t>(groups), 1,
                    warpgroup_threads, MixedRows::shared_bytes};
    launch(mixed_kernel, dims, *e.stream, a, codes, warpgroup_rows(scratch, a.x.rows, a.x.cols));
}

}  // namespace nibble::cuda
