// The norm of a row, as its own kernel and as the beginning of a product.
// Both give the same bits.

// Threads that share a row's sum of squares, however many the kernel has: they fix its order.
constexpr int norm_threads = 256;

// 1 / sqrt(mean of (x - mean)^2 + eps) of n values; called by the whole block. `partial`: a float per warp.
__device__ inline float norm_factor(const float* x, int n, float mean, float eps, float* partial) {
    constexpr int at_once = 16;  // values that a thread has on their way
    float squares = 0;
    for (int first = thread_index(); first < n && thread_index() < norm_threads;
         first += at_once * norm_threads) {
        float v[at_once];
#pragma unroll
        for (int j = 0; j < at_once; ++j)
            v[j] = first + j * norm_threads < n ? x[first + j * norm_threads] : mean;
#pragma unroll
        for (int j = 0; j < at_once; ++j) squares = fused(v[j] - mean, v[j] - mean, squares);
    }
    return 1 / sqrtf(block_sum(squares, partial) / static_cast<float>(n) + eps);
}
