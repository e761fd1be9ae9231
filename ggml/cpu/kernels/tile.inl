// The one floating-point micro-kernel: c[r][0..cols) (+)= sum over k of x[r][k] * w[k][0..cols).
// Lanes are outputs and k runs upwards, so each output's order is fixed and no horizontal sum is needed.

template <int R, int V>
inline void fma_tile(const float* x, int64_t ldx, const float* w, int64_t ldw, int64_t k, float* c,
                     int64_t ldc, bool from_zero) {
    F acc[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) acc[r][v] = from_zero ? zero() : load(c + r * ldc + v * lanes);
    for (int64_t i = 0; i < k; ++i, w += ldw, ++x) {
        F wv[V];
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) wv[v] = load(w + v * lanes);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const F xv = set1(x[r * ldx]);
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) acc[r][v] = fma(xv, wv[v], acc[r][v]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) store(c + r * ldc + v * lanes, acc[r][v]);
}

// `rows` <= R rows of V vectors.
template <int R, int V>
inline void fma_rows(int64_t rows, const float* x, int64_t ldx, const float* w, int64_t ldw, int64_t k,
                     float* c, int64_t ldc, bool from_zero) {
    if (rows == R) return fma_tile<R, V>(x, ldx, w, ldw, k, c, ldc, from_zero);
    if constexpr (R > 1) fma_rows<R - 1, V>(rows, x, ldx, w, ldw, k, c, ldc, from_zero);
}

template <int V>
inline void fma_columns(int64_t m, const float* x, int64_t ldx, const float* w, int64_t ldw, int64_t k,
                        float* c, int64_t ldc, bool from_zero) {
    for (int64_t r = 0; r < m; r += tile_rows)
        fma_rows<tile_rows, V>(m - r < tile_rows ? m - r : tile_rows, x + r * ldx, ldx, w, ldw, k,
                               c + r * ldc, ldc, from_zero);
}

// Any number of rows and of whole vectors of columns.
inline void fma_block(int64_t m, int64_t cols, const float* x, int64_t ldx, const float* w, int64_t ldw,
                      int64_t k, float* c, int64_t ldc, bool from_zero) {
    int64_t at = 0;
    for (; at + tile_vecs * lanes <= cols; at += tile_vecs * lanes)
        fma_columns<tile_vecs>(m, x, ldx, w + at, ldw, k, c + at, ldc, from_zero);
    if constexpr (tile_vecs > 2)
        for (; at + 2 * lanes <= cols; at += 2 * lanes)
            fma_columns<2>(m, x, ldx, w + at, ldw, k, c + at, ldc, from_zero);
    for (; at < cols; at += lanes) fma_columns<1>(m, x, ldx, w + at, ldw, k, c + at, ldc, from_zero);
}
