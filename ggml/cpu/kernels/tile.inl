// The one floating-point micro-kernel: c[r][0..cols) (+)= sum over k of x[r][k] * w[k][0..cols).
// Lanes are outputs and k runs upwards, so each output's order is fixed and no horizontal sum is needed.

// What x and w consist of and how they meet: here numbers of 32 bits. Others are several narrower numbers in
// 32 bits, `size` of them, which are multiplied one by one and all added to the same sum.
struct Reals {
    struct Multiplier;  // with block(), which is fma_block() or gives the same
    using Number = float;
    using Vector = F;
    static constexpr int size = 1;
    static constexpr int64_t depth = 1;
    static F read(const float* p) { return load(p); }
    static F broadcast(const float* x) { return set1(*x); }
    static F multiply_add(F x, F w, F sum) { return fma(x, w, sum); }

    // What attention and narrower numbers need besides. n floats, scaled; a vector, from fn(i) for each of
    // its parts in turn; the v-th of V vectors of values from number i on of rows `stride` bytes apart, of
    // which there are n; and weights j and following of a row.
    static void narrow(const float* x, int64_t n, float scale, float* out) {
        for (int64_t i = 0; i < n; i += lanes) {
            const int64_t count = n - i < lanes ? n - i : lanes;
            store_n(out + i, load_n(x + i, count) * set1(scale), count);
        }
    }
    static void write(float* p, F x) { store(p, x); }
    template <class Row, class Fn>
    [[gnu::always_inline]] static F gather(Fn fn) {
        return fn(0);
    }
    template <class Row, int V>
    [[gnu::always_inline]] static F value(const std::byte* rows, int64_t /*stride*/, int64_t /*n*/, int64_t i,
                                          int v) {
        return Row::template value<V>(rows, i, v);
    }
    static void store_weights(float* row, int64_t j, F e) { store(row + j, e); }
};

// Where w's numbers are: `row` from one k to the next, `vector` from one vector of columns to the next.
struct Steps {
    int64_t row, vector;
    constexpr Steps(int64_t r, int64_t v = lanes) : row(r), vector(v) {}
};

template <class P, int R, int V>
inline void fma_tile(const typename P::Number* x, int64_t ldx, const typename P::Number* w, Steps steps,
                     int64_t k, float* c, int64_t ldc, bool from_zero) {
    F acc[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) acc[r][v] = from_zero ? zero() : load(c + r * ldc + v * lanes);
    for (int64_t i = 0; i < k; ++i, w += steps.row, ++x) {
        typename P::Vector wv[V];
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) wv[v] = P::read(w + v * steps.vector);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const typename P::Vector xv = P::broadcast(x + r * ldx);
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) acc[r][v] = P::multiply_add(xv, wv[v], acc[r][v]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) store(c + r * ldc + v * lanes, acc[r][v]);
}

// `rows` <= R rows of V vectors.
template <class P, int R, int V>
inline void fma_rows(int64_t rows, const typename P::Number* x, int64_t ldx, const typename P::Number* w,
                     Steps steps, int64_t k, float* c, int64_t ldc, bool from_zero) {
    if (rows == R) return fma_tile<P, R, V>(x, ldx, w, steps, k, c, ldc, from_zero);
    if constexpr (R > 1) fma_rows<P, R - 1, V>(rows, x, ldx, w, steps, k, c, ldc, from_zero);
}

template <class P, int V>
inline void fma_columns(int64_t m, const typename P::Number* x, int64_t ldx, const typename P::Number* w,
                        Steps steps, int64_t k, float* c, int64_t ldc, bool from_zero) {
    for (int64_t r = 0; r < m; r += tile_rows)
        fma_rows<P, tile_rows, V>(m - r < tile_rows ? m - r : tile_rows, x + r * ldx, ldx, w, steps, k,
                                  c + r * ldc, ldc, from_zero);
}

// Any number of rows and of whole vectors of columns; k, ldx and steps count numbers of P.
template <class P = Reals>
inline void fma_block(int64_t m, int64_t cols, const typename P::Number* x, int64_t ldx,
                      const typename P::Number* w, Steps steps, int64_t k, float* c, int64_t ldc,
                      bool from_zero) {
    int64_t at = 0;
    const auto from = [&](int64_t column) { return w + column / lanes * steps.vector; };
    for (; at + tile_vecs * lanes <= cols; at += tile_vecs * lanes)
        fma_columns<P, tile_vecs>(m, x, ldx, from(at), steps, k, c + at, ldc, from_zero);
    if constexpr (tile_vecs > 2)
        for (; at + 2 * lanes <= cols; at += 2 * lanes)
            fma_columns<P, 2>(m, x, ldx, from(at), steps, k, c + at, ldc, from_zero);
    for (; at < cols; at += lanes) fma_columns<P, 1>(m, x, ldx, from(at), steps, k, c + at, ldc, from_zero);
}

template <class P>
struct FmaMultiplier {
    static constexpr int64_t most_depth = 1024;
    template <class... Args>
    void block(Args... args) const {
        fma_block<P>(args...);
    }
};
struct Reals::Multiplier : FmaMultiplier<Reals> {};
