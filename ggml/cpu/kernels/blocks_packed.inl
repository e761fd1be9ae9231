// Blocks of a matmul with packed weights in reals: streamed against few rows of activations at a time.
// Weights that are not packed become so on the way.

// Columns from n0 on, V groups at a time and then fewer, against at most R rows at a time.
template <class Rows, int R, int V>
inline void stream_groups(const MatmulBlock& b, const Activations<Rows>& a, std::byte* memory,
                          int64_t n0 = 0) {
    constexpr int64_t width = V * lanes;
    alignas(64) float c[R * width];
    for (; b.n - n0 > width - lanes; n0 += width) {
        const int64_t n = b.n - n0 < width ? b.n - n0 : width;
        const std::byte* const w = packed_group(b, n0, memory, V);
        for (int64_t r = 0; r < b.m; r += R) {
            const int64_t m = b.m - r < R ? b.m - r : R;
            packed_rows<Rows, R, V>(b, m, w, a.from(r), c, width);
            finish(b, n0, n, r, m, c, width);
        }
    }
    if constexpr (V > 1) stream_groups<Rows, R, V / 2>(b, a, memory, n0);
}

// Weights in reals that are packed, or become so in `memory`, which is for four groups. A sum waits for its
// last product, column after column: where rows are few, more groups fill that time, if memory keeps up.
template <class Rows>
inline void stream_packed(const MatmulBlock& b, const Activations<Rows>& a, std::byte* memory = nullptr) {
    const bool one = b.streaming.one_real_group;
    if (b.m <= 2)
        one ? stream_groups<Rows, 2, 1>(b, a, memory) : stream_groups<Rows, 2, 4>(b, a, memory);
    else
        one ? stream_groups<Rows, stream_rows, 1>(b, a, memory)
            : stream_groups<Rows, stream_rows, 2>(b, a, memory);
}
