// The product of one row with weights of any formats in one launch, as fast as memory is: decoding.
// Its sums are formed group by group and scaled in f32: the bits of matmul_few.cu, not those of matmul.cu.
#include <algorithm>
#include <array>
#include <limits>

#include "ggml/base/checked.h"
#include "ggml/cuda/product.h"
#include "ggml/cuda/tile_codes.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"
#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/matmul_blocks.inl"
#include "ggml/cuda/matmul_gemv.inl"

// Block x: `height` row blocks, and as many again `grid_x()` times that further on.
template <uint32_t... codes>
__global__ void __launch_bounds__(row_block_threads, resident_blocks) gemv_kernel(RowBlockArgs a) {
    constexpr int unit_bits = most_unit_bits<codes...>;
    std::byte* shared = shared_memory() + a.table_bytes();
    auto* const sums = reinterpret_cast<float*>(shared);  // [slot][split][16]
    shared += (a.slots << a.split_bits) * 64;
    auto* const squares = reinterpret_cast<float*>(shared);  // of each warp's share
    shared += block_warps * sizeof(float);

    const int i16 = thread_index() % 16;
    const BlockGroup group(a);
    const WarpShare share(a);
    const int inverse_bytes = (share.most + 3) / 4 * 16;
    std::byte* const mine = shared + warp_index() * (inverse_bytes + (share.most << unit_bits) * 2);
    const WarpRow x{mine + inverse_bytes, reinterpret_cast<float*>(mine), 2 << unit_bits};
    ResultEnd end;  // the first results' comes while the weights do
    const auto ready = [&] {
        wait_for_previous();
        prepare_units<unit_bits>(a, share, 0, x, squares);
        if (a.table_used) sync_block();
        sync_warp();
        if (thread_index() >= 16 * a.slots) return;
        const RowBlockPlace at(a, group, thread_index() / 16);
        if (at.which >= 0 && 16 * at.block + i16 < a.segment[at.which].rows) end = ResultEnd(a, at, i16, 0);
    };
    uint32_t table = 0;
    if (a.table_used) table = fill_table(a.table);
    with_group_format<codes...>(a, group, [&]<TileFormat f>() {
        constexpr int bits = unit_bits - cuda::unit_bits(f);
        const int mine = warp_index() >> a.split_bits;
        RowBlockStream<GemvUnit<f>> stream(WarpBlocks(a, group, mine), group.turns(a, mine),
                                           share.first << bits, share.units << bits, a.x.cols);
        ready();
        stream.run(
            GemvWork<f>{x, table, ByteFronts<f>(a.zero), sums + warp_index() * 16, 16 * block_warps, bits});
    });
    sync_block();

    const float factor = units_factor(a, squares);
    if (block_x() == 0) keep_normed(a, 0, factor);
    for (int i = thread_index(); i < 16 * a.slots; i += row_block_threads) {
        const RowBlockPlace place(a, group, i / 16);
        if (place.which < 0 || 16 * place.block + i16 >= a.segment[place.which].rows) continue;
        if (i != thread_index()) end = ResultEnd(a, place, i16, 0);
        end.store(a, place, i / 16, i16, 0, [&](int slot) {
            return sum_of_splits(a, sums + (slot << a.split_bits) * 16 + i16, 16) * factor;
        });
    }
}

}  // namespace

bool multiply_gemv(const Exec& e, const ProductArgs& product, std::span<const Type> types,
                   const UnitArgs& ends_in) {
    if (!e.gemv || product.x.rows != 1 || !takes_units(product, types)) return false;
    RowBlockArgs a{{product}, ends_in};
    const int64_t grid = plan_row_blocks(e, types, a);
    if (grid == 0) return false;
    const int64_t units = ceil_div(int64_t{a.units()}, int64_t{1} << a.split_bits);
    const size_t shared =
        static_cast<size_t>(a.table_bytes()) + (static_cast<size_t>(a.slots) << a.split_bits) * 64 +
        block_warps * (sizeof(float) +
                       static_cast<size_t>(round_up(units, int64_t{4}) * 4 + units * (2 << a.unit_bits)));
    if (shared > e.card->shared_per_block) return false;
    return with_formats(
        types, [&]<uint32_t... codes>() {
            launch(gemv_kernel<codes...>, Dims{grid, 1, 1, row_block_threads, shared}, *e.stream, a);
        });
}

}  // namespace nibble::cuda
