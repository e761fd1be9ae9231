// Whether a card's warpgroups multiply as warpgroup_nvcc.h has it: each kind of product once, of whole
// numbers, whose sums are exact. A card that does otherwise is used without them instead of giving nonsense.
#include "ggml/cuda/device.h"
#include "ggml/cuda/exec.h"

namespace nibble::cuda {
namespace {

constexpr int tile_rows = 256, depth = 16, row_bytes = 128, checked_step = 3;

// Small numbers that do not repeat with any power of two.
__device__ inline int left(int row, int k) { return (row * 3 + k * k * 2 + row * k) % 11 - 5; }
__device__ inline int right(int row, int column) {
    return (row * row * 3 + column * column * 5 + row * column) % 17 - 8;
}

template <bool bf16>
__device__ uint32_t pair(int low, int high) {
    const auto a = static_cast<float>(low), b = static_cast<float>(high);
    return bf16 ? bf162(a, b) : half2(a, b);
}

// The rows of B, as device.h says they lie.
template <bool bf16>
__device__ void fill(std::byte* tile) {
    sync_block();
    for (int i = thread_index(); i < tile_rows * 8; i += block_threads()) {
        const int row = i / 8, piece = i % 8;
        Words4 w;
        for (int j = 0; j < 4; ++j)
            w.w[j] = pair<bf16>(right(row, 8 * piece + 2 * j), right(row, 8 * piece + 2 * j + 1));
        *reinterpret_cast<Words4*>(tile + row * row_bytes + (piece ^ (row % 8)) * 16) = w;
    }
    publish_shared();
    sync_block();
}

// The lane's two rows of A, g and g + 8 of the warp's 16.
__device__ inline int row_of(int half) { return warp_index() * 16 + lane() / 4 + 8 * half; }

template <bool bf16>
__device__ void make_fragment(uint32_t (&a)[4]) {
    for (int r = 0; r < 4; ++r) {
        const int k = lane() % 4 * 2 + r / 2 * 8;
        a[r] = pair<bf16>(left(row_of(r % 2), k), left(row_of(r % 2), k + 1));
    }
}

// Sums of the lane that are not what they should be. `rows`: B has a row for each k, not for each column.
template <int n8>
__device__ int wrong(const float (&d)[n8][4], bool rows) {
    int count = 0;
    for (int j = 0; j < n8; ++j)
        for (int i = 0; i < 4; ++i) {
            const int column = 8 * j + lane() % 4 * 2 + i % 2;
            int sum = 0;
            for (int k = 0; k < depth; ++k) {
                const int at = depth * checked_step + k;
                sum += left(row_of(i / 2), k) * (rows ? right(at, column) : right(column, at));
            }
            count += d[j][i] == static_cast<float>(sum) ? 0 : 1;
        }
    return count;
}

template <int n8, class Multiply>
__device__ int wrong_products(bool rows, const Multiply& multiply) {
    float d[n8][4] = {};
    warpgroup_begin();
    multiply(d);
    warpgroup_commit();
    warpgroup_wait<0>();
    warpgroup_results<n8>(d);
    return wrong(d, rows);
}

// One warpgroup; adds its threads whose sums are all right to `count`. None are where the kernel is left
// empty: a card of generation 9.0 can be made to run PTX that was compiled without such products.
__global__ void check_kernel(int* count) {
    wait_for_previous();
    if (!has_warpgroups()) return;
    std::byte* const tile = shared_memory();
    uint32_t a[4];
    int faults = 0;
    fill<false>(tile);
    make_fragment<false>(a);
    faults +=
        wrong_products<4>(false, [&](float(&d)[4][4]) { warpgroup_multiply32(d, a, tile, checked_step); });
    faults +=
        wrong_products<16>(false, [&](float(&d)[16][4]) { warpgroup_multiply128(d, a, tile, checked_step); });
    faults +=
        wrong_products<32>(false, [&](float(&d)[32][4]) { warpgroup_multiply256(d, a, tile, checked_step); });
    faults += wrong_products<8>(
        false, [&](float(&d)[8][4]) { warpgroup_multiply64<false>(d, a, tile, checked_step); });
    faults += wrong_products<8>(
        true, [&](float(&d)[8][4]) { warpgroup_multiply64_rows<false>(d, a, tile, checked_step); });
    fill<true>(tile);
    make_fragment<true>(a);
    faults += wrong_products<8>(
        false, [&](float(&d)[8][4]) { warpgroup_multiply64<true>(d, a, tile, checked_step); });
    faults += wrong_products<8>(
        true, [&](float(&d)[8][4]) { warpgroup_multiply64_rows<true>(d, a, tile, checked_step); });
    if (faults == 0) atomic_add(count, 1);
}

}  // namespace

void check_warpgroups(Stream& stream, int* count) {
    launch(check_kernel, Dims{1, 1, 1, warpgroup_check_threads, tile_rows * row_bytes}, stream, count);
}

}  // namespace nibble::cuda
