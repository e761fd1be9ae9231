// The norm of a row, as its own kernel and as the beginning of a product.
// Both give the same bits.

// Threads that share a row's sum of squares, however many the kernel has: they fix its order. Each takes
// every norm_threads'th four of columns.
constexpr int norm_threads = 256;
constexpr int norm_at_once = 4;  // fours that a thread has on their way

// Columns c .. c + 3 of a row of n; zeros behind the last. In fours nothing depends on a condition, which
// would be waited for. What is constant may be read while a launch waits.
template <bool fours, bool constant = false>
__device__ void norm_columns(const float* row, int n, int c, float (&v)[4]) {
    if constexpr (fours) {
        const float* const at = row + (c < n ? c : 0);
        floats_of(constant ? load16(at) : *reinterpret_cast<const Words4*>(at), v);
    } else {
        for (int j = 0; j < 4; ++j)
            v[j] = c + j >= n ? 0 : constant ? bits_float(load4(row + c + j)) : row[c + j];
    }
}

template <bool fours>
__device__ float with_squares(float squares, const float (&v)[4], int n, int c, float mean) {
    for (int j = 0; j < 4; ++j)
        if (c + (fours ? 0 : j) < n) squares = fused(v[j] - mean, v[j] - mean, squares);
    return squares;
}

// 1 / sqrt(mean of (x - mean)^2 + eps)
__device__ inline float factor_of_squares(float squares, int n, float eps) {
    return 1 / sqrtf(squares / static_cast<float>(n) + eps);
}

template <bool fours>
__device__ float own_squares(const float* x, int n, float mean) {
    float squares = 0;
    for (int first = 4 * thread_index(); first < n && thread_index() < norm_threads;
         first += 4 * norm_at_once * norm_threads) {
        float v[norm_at_once][4];
#pragma unroll
        for (int j = 0; j < norm_at_once; ++j) norm_columns<fours>(x, n, first + 4 * j * norm_threads, v[j]);
#pragma unroll
        for (int j = 0; j < norm_at_once; ++j)
            squares = with_squares<fours>(squares, v[j], n, first + 4 * j * norm_threads, mean);
    }
    return squares;
}

// Of n values; called by the whole block. `partial`: a float per warp.
__device__ inline float norm_factor(const float* x, int n, float mean, float eps, float* partial) {
    const bool fours = n % 4 == 0 && reinterpret_cast<uintptr_t>(x) % sizeof(Words4) == 0;
    const float squares = fours ? own_squares<true>(x, n, mean) : own_squares<false>(x, n, mean);
    return factor_of_squares(block_sum(squares, partial), n, eps);
}
