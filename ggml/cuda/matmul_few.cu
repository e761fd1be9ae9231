// The product of two to eight rows with weights of any formats in one launch: some users, or guessed tokens.
// A row has the bits that it has alone (matmul_gemv.cu), however many there are.
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
#include "ggml/cuda/matmul_few_blocks.inl"

// Block x: a row of x; y: a part of it.
__global__ void __launch_bounds__(row_block_threads) few_rows_kernel(const __grid_constant__ FewArgs a) {
    wait_for_previous();
    prepare_few_row(a, block_x(), block_y());
}

// Block x: `height` row blocks, and as many again `grid_x()` times that further on.
template <uint32_t... codes>
__global__ void __launch_bounds__(row_block_threads, resident_blocks)
    few_kernel(const __grid_constant__ FewArgs a) {
    few_product<codes...>(a);
}

}  // namespace

size_t few_prepared_bytes(int64_t x_cols) {
    const int64_t cols = few_columns(x_cols);
    const size_t floats =
        static_cast<size_t>(1 + cols / warp_columns + cols / 16 + cols / 32 + cols / 64) * 8;
    return few_values_bytes(cols) + floats * sizeof(float);
}

bool few_applies(const Exec& e, int64_t rows, int64_t cols) {
    constexpr int64_t cached = int64_t{1} << 17;  // of x: what blocks that stay do not read too often
    return e.gemv && rows >= 2 && rows <= most_few && rows * cols <= cached;
}

bool multiply_few(const Exec& e, const ProductArgs& product, std::span<const Type> types,
                  std::span<std::byte> memory, const UnitArgs& ends_in) {
    FewArgs a;
    const int64_t grid = plan_few(e, product, types, memory, ends_in, a);
    if (grid == 0 || few_row_shared_bytes(a) > e.card->shared_per_block) return false;
    return with_formats(
        types, [&]<uint32_t... codes>() {
            launch(few_rows_kernel,
                   Dims{product.x.rows, 1 << a.row_bits, 1, row_block_threads, few_row_shared_bytes(a)},
                   *e.stream, a);
            launch(few_kernel<codes...>, Dims{grid, 1, 1, row_block_threads, few_shared_bytes(a)}, *e.stream,
                   a);
        });
}

}  // namespace nibble::cuda
