// View: a tensor as a kernel argument.
// Rows and strides fit 64 bits; columns of activations fit 32.
#pragma once

#include "ggml/cuda/device.h"
#include "ggml/program/tensor.h"

namespace nibble::cuda {

struct View {
    std::byte* data;
    int64_t rows, stride;
    int32_t cols;

    View() : View(Tensor{}) {}
    View(const Tensor& t)  // NOLINT: implicit on purpose
        : data(t.data), rows(t.rows), stride(t.stride), cols(static_cast<int32_t>(t.cols)) {}

    template <class T = float>
    __device__ T* row(int64_t r) const {
        return reinterpret_cast<T*>(data + r * stride);
    }
    __host__ __device__ explicit operator bool() const { return data != nullptr; }
};

// Four numbers as they are read and written at once.
__device__ inline Words4 words_of(const float (&v)[4]) {
    return {{float_bits(v[0]), float_bits(v[1]), float_bits(v[2]), float_bits(v[3])}};
}
__device__ inline void floats_of(const Words4& w, float (&v)[4]) {
    for (int i = 0; i < 4; ++i) v[i] = bits_float(w.w[i]);
}

// Threads for a row of this many columns, one column each up to a limit: whole warps.
inline int32_t threads_for(int64_t cols, int32_t most = 256) {
    const int64_t warps = (cols + 31) / 32;
    return static_cast<int32_t>(warps * 32 < most ? (warps ? warps * 32 : 32) : most);
}

inline int64_t blocks_for(int64_t n, int64_t per_block) { return (n + per_block - 1) / per_block; }

}  // namespace nibble::cuda
