// The product of one row with weights of any formats in one launch, as fast as memory is: decoding. Sums are
// formed group by group and scaled in f32: the bits of matmul_few.cu, not those of matmul.cu.
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
__global__ void __launch_bounds__(row_block_threads, resident_blocks)
    gemv_kernel(const __grid_constant__ RowBlockArgs a) {
    gemv_product<codes...>(a, BlockGroup(a), [] { wait_for_previous(); });
}

}  // namespace

bool multiply_gemv(const Exec& e, const ProductArgs& product, std::span<const Type> types,
                   const UnitArgs& ends_in) {
    if (!e.gemv || product.x.rows != 1 || !takes_units(product, types)) return false;
    RowBlockArgs a{{product}, ends_in};
    const int64_t grid = plan_row_blocks(e, types, a);
    const size_t shared = gemv_shared_bytes(a);
    if (grid == 0 || shared > e.card->shared_per_block) return false;
    return with_formats(
        types, [&]<uint32_t... codes>() {
            launch(gemv_kernel<codes...>, Dims{grid, 1, 1, row_block_threads, shared}, *e.stream, a);
        });
}

}  // namespace nibble::cuda
