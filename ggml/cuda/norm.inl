// The norm of a row, as its own kernel and as the beginning of a product.
// Both give the same bits.

// Threads that share a row's sum of squares, however many the kernel has: they fix its order.
constexpr int norm_threads = 256;

// 1 / sqrt(mean of (x - mean)^2 + eps) of n values; called by the whole block. `partial`: a float per warp.
__device__ inline float norm_factor(const float* x, int n, float mean, float eps, float* partial) {
    float squares = 0;
    for (int i = thread_index(); i < n && thread_index() < norm_threads; i += norm_threads) {
        const float d = x[i] - mean;
        squares = fused(d, d, squares);
    }
    return 1 / sqrtf(block_sum(squares, partial) / static_cast<float>(n) + eps);
}
