// The products of attention: scores of a tile's keys and sums of its weighted values, by each warp for itself
// or begun by four as a warpgroup. T is a TileAttention.

// Adds to scores, which begin as zeros.
template <class T>
__device__ void score(const T& at, const std::byte* k, float (&s)[T::score_tiles][4]) {
    using Shape = typename T::Shape;
#pragma unroll
    for (int kk = 0; kk < Shape::steps / 2; ++kk) {
        uint32_t x[2][Shape::query_parts][4];
#pragma unroll
        for (int step = 0; step < 2; ++step)
#pragma unroll
            for (int h = 0; h < Shape::query_parts; ++h)
                if constexpr (Shape::queries_in_registers) {
#pragma unroll
                    for (int w = 0; w < 4; ++w) x[step][h][w] = at.query[2 * kk + step][h][w];
                } else {
                    const Words4 words = *at.query_at(2 * kk + step, h);
#pragma unroll
                    for (int w = 0; w < 4; ++w) x[step][h][w] = words.w[w];
                }
#pragma unroll
        for (int j = 0; j < T::score_tiles; ++j) {
            uint32_t b[4];
            load_matrix4(b, k + (at.sharer * Shape::keys_per_warp + j * 8 + lane() % 8) * Shape::stride +
                                kk * 64 + lane() / 8 * 16);
#pragma unroll
            for (int step = 0; step < 2; ++step)
#pragma unroll
                for (int h = 0; h < Shape::query_parts; ++h)
                    multiply<T::bf16>(s[j], x[step][h], b[2 * step], b[2 * step + 1]);
        }
    }
}

// The sums of the weights alone, as they were rounded.
template <class T>
__device__ void add_weights(T& at, int step, const typename T::Weights& w) {
    constexpr uint32_t ones = one_twice<T::bf16>;
#pragma unroll
    for (int p = 0; p < T::Shape::weight_parts; ++p)
        multiply<T::bf16>(at.sums[T::value_tiles], w[step][p], ones, ones);
}

template <class T>
__device__ void add_values(T& at, const std::byte* v, const typename T::Weights& w) {
    using Shape = typename T::Shape;
#pragma unroll
    for (int step = 0; step < Shape::key_steps; ++step) {
        add_weights(at, step, w);
#pragma unroll
        for (int n = 0; n < T::value_tiles; n += 2) {
            uint32_t b[4];
            load_matrix4_transposed(b, v + (step * 16 + lane() % 16) * Shape::stride +
                                           (at.sharer * Shape::cols_per_warp + n * 8 + lane() / 16 * 8) * 2);
#pragma unroll
            for (int p = 0; p < Shape::weight_parts; ++p) {
                multiply<T::bf16>(at.sums[n], w[step][p], b[0], b[1]);
                multiply<T::bf16>(at.sums[n + 1], w[step][p], b[2], b[3]);
            }
        }
    }
}

// Keys are the columns of the product: 64 values of one at a time.
template <class T>
__device__ void score_together(const T& at, const std::byte* k, float (&s)[T::score_tiles][4]) {
    using Shape = typename T::Shape;
    static_assert(T::score_tiles == 8);
    warpgroup_begin();
#pragma unroll
    for (int step = 0; step < Shape::steps; ++step)
#pragma unroll
        for (int h = 0; h < Shape::query_parts; ++h)
            warpgroup_multiply64<T::bf16>(s, at.query[step][h], k + step / 4 * Shape::panel_bytes, step % 4);
    warpgroup_commit();
}

// Values lie key after key: rows of the product.
template <class T>
__device__ void add_values_together(T& at, const std::byte* v, const typename T::Weights& w) {
    using Shape = typename T::Shape;
    warpgroup_begin();
#pragma unroll
    for (int step = 0; step < Shape::key_steps; ++step)
#pragma unroll
        for (int n = 0; n < T::value_tiles; n += 8)
#pragma unroll
            for (int p = 0; p < Shape::weight_parts; ++p)
                warpgroup_multiply64_rows<T::bf16>(at.sums + n, w[step][p], v + n / 8 * Shape::panel_bytes,
                                                   step);
    warpgroup_commit();
}
