// Reading without doing anything with it: the ceiling of generation on this card.
// Sixteen bytes per lane at a time, as the kernels read weights, and four of them on their way.
#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

__global__ void read_kernel(const std::byte* data, int64_t pieces, uint32_t* sink) {
    wait_for_previous();
    constexpr int at_once = 4;
    uint32_t sum = 0;
    const auto add = [&](const Words4& v) { sum += v.w[0] ^ v.w[1] ^ v.w[2] ^ v.w[3]; };
    const int64_t stride = grid_x() * block_threads();
    int64_t i = block_x() * block_threads() + thread_index();
    for (; i + (at_once - 1) * stride < pieces; i += at_once * stride) {
        Words4 v[at_once];
#pragma unroll
        for (int j = 0; j < at_once; ++j) v[j] = load16(data + 16 * (i + j * stride));
#pragma unroll
        for (int j = 0; j < at_once; ++j) add(v[j]);
    }
    for (; i < pieces; i += stride) add(load16(data + 16 * i));
    if (sum == 0x9e3779b9u) *sink = sum;  // so that the reads cannot be left out
}

}  // namespace

void read_through(Stream& stream, const std::byte* data, size_t bytes, std::byte* sink) {
    constexpr int64_t per_block = 16 * 256 * 16;  // sixteen reads of each thread, in four turns
    const auto n = static_cast<int64_t>(bytes);
    launch(read_kernel, Dims{blocks_for(n, per_block), 1, 1, 256}, stream, data, n / 16,
           reinterpret_cast<uint32_t*>(sink));
}

}  // namespace nibble::cuda
