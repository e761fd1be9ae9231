// Matmul of integer-coded weights with int8 activations in blocks of 32.
// Lanes are outputs: a 32-bit lane takes four k at a time, a block's integer sum is exact, blocks add up in
// order; so a result depends neither on the source of the codes nor on the rows beside it.

template <bool is_signed>
inline auto prepare(I codes) {
    if constexpr (is_signed)
        return signed_weights(codes);
    else
        return unsigned_weights(codes);
}

// R activation rows from `row` against the source's blocks [0, n), which are blocks [first, first + n) of x.
template <int R, class Source>
inline void int8_tile(Source source, int64_t n, const Int8Rows& x, int64_t row, int64_t first, int64_t k,
                      float* c, int64_t ldc, bool from_zero) {
    constexpr int V = Source::vectors, H = Source::halves;
    const int64_t blocks = k / int8_block;
    F acc[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) acc[r][v] = from_zero ? zero() : load(c + r * ldc + v * lanes);
    const int8_t* q = x.q + row * k + first * int8_block;
    const Int8Block* meta = x.blocks + row * blocks + first;
    for (int64_t b = 0; b < n; ++b, q += int8_block, ++meta) {
        source.begin(b);
        I sums[R][V][H];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
            for (int h = 0; h < H; ++h) {
                const Int8Block& m = meta[r * blocks];
                I start = set1_i(0);
                if constexpr (Source::zero != 0)
                    start = shift_left<__builtin_ctz(Source::zero | 1 << 30)>(
                        set1_i(H == 1 ? m.neg_sum : m.neg_half[h]));
#pragma GCC unroll 16
                for (int v = 0; v < V; ++v) sums[r][v][h] = start;
            }
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) {
                const auto w = prepare<Source::is_signed>(source.codes(v, j));
#pragma GCC unroll 16
                for (int r = 0; r < R; ++r) {
                    int32_t four;
                    std::memcpy(&four, q + r * k + 4 * j, 4);
                    I& sum = sums[r][v][j * H / 8];
                    sum = dot(sum, w, set1_i(four));
                }
            }
        }
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v)
#pragma GCC unroll 2
            for (int h = 0; h < H; ++h) {
                const F scale = source.scale(v, h);
#pragma GCC unroll 16
                for (int r = 0; r < R; ++r) {
                    const Int8Block& m = meta[r * blocks];
                    acc[r][v] = fma(to_float(sums[r][v][h]), scale * set1(m.d), acc[r][v]);
                    if constexpr (Source::has_min)
                        acc[r][v] = fma(source.min(v, h), set1(H == 1 ? m.d_sum : m.d_half[h]), acc[r][v]);
                }
            }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) store(c + r * ldc + v * lanes, acc[r][v]);
}

// `rows` <= R rows.
template <int R, class Source>
inline void int8_rows(int64_t rows, const Source& source, int64_t n, const Int8Rows& x, int64_t row,
                      int64_t first, int64_t k, float* c, int64_t ldc, bool from_zero) {
    if (rows == R) return int8_tile<R>(source, n, x, row, first, k, c, ldc, from_zero);
    if constexpr (R > 1) int8_rows<R - 1>(rows, source, n, x, row, first, k, c, ldc, from_zero);
}
