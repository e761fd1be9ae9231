// Matmul of int8 weights with int8 activations, both in blocks of 32 with a scale.
// Lanes are outputs: a 32-bit lane takes four k at a time, a block's integer sum is exact, blocks add up in
// order.

// One weight block of V * lanes rows: where the micro-kernel gets codes and scales.
// Streaming source: rows in the layout of Q8_0, transposed in registers.
struct Q8Stream {
    const RowSet* rows;
    int64_t row_bytes, next_group;
    I codes[8];
    F scales;
    void begin(int64_t block) {
        const int64_t at = block * 34;
        if (block % 2 == 0) prefetch_rows(*rows, at, row_bytes, next_group);
        scales = gather_f16(rows->row, at);
        transpose_32_bytes(rows->row, at + 2, codes);
    }
    W weights(int, int j) const { return prepare(codes[j]); }
    F scale(int) const { return scales; }
};

// Panel source: blocks packed as [v][8 vectors of codes], then [v] vectors of scales.
template <int V>
struct Int8Panel {
    static constexpr int64_t block_bytes = V * 9 * lanes * 4;
    const std::byte* panel;
    const std::byte* at = nullptr;
    void begin(int64_t block) { at = panel + block * block_bytes; }
    W weights(int v, int j) const { return prepare(load_i(at + (v * 8 + j) * lanes * 4)); }
    F scale(int v) const { return load(reinterpret_cast<const float*>(at + V * 8 * lanes * 4) + v * lanes); }
};

// Blocks [first, first + n) of x against the source's blocks [0, n) (+ source_first for streams).
template <int R, int V, class Source>
inline void int8_tile(Source source, int64_t n, const Int8Rows& x, int64_t row, int64_t first, int64_t k,
                      float* c, int64_t ldc, bool from_zero) {
    const int64_t blocks = k / int8_block;
    F acc[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) acc[r][v] = from_zero ? zero() : load(c + r * ldc + v * lanes);
    const int8_t* q = x.q + row * k + first * int8_block;
    const float* d = x.d + row * blocks + first;
    const int32_t* offset = x.offset + row * blocks + first;
    for (int64_t b = 0; b < n; ++b, q += int8_block) {
        source.begin(b);
        I sums[R][V];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) sums[r][v] = set1_i(offset[r * blocks + b]);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            W w[V];
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) w[v] = source.weights(v, j);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                int32_t four;
                std::memcpy(&four, q + r * k + 4 * j, 4);
                const I xv = set1_i(four);
#pragma GCC unroll 16
                for (int v = 0; v < V; ++v) sums[r][v] = dot(sums[r][v], w[v], xv);
            }
        }
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) {
            const F dw = source.scale(v);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r)
                acc[r][v] = fma(to_float(sums[r][v]), dw * set1(d[r * blocks + b]), acc[r][v]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) store(c + r * ldc + v * lanes, acc[r][v]);
}

// `rows` <= R rows.
template <int R, int V, class Source>
inline void int8_rows(int64_t rows, const Source& source, int64_t n, const Int8Rows& x, int64_t row,
                      int64_t first, int64_t k, float* c, int64_t ldc, bool from_zero) {
    if (rows == R) return int8_tile<R, V>(source, n, x, row, first, k, c, ldc, from_zero);
    if constexpr (R > 1) int8_rows<R - 1, V>(rows, source, n, x, row, first, k, c, ldc, from_zero);
}

// Blocks [first, first + n) of a row group into vector v of a panel of V.
template <int V>
inline void pack_int8(const RowSet& rows, int64_t first, int64_t n, int v, std::byte* panel) {
    for (int64_t b = 0; b < n; ++b, panel += Int8Panel<V>::block_bytes) {
        const int64_t at = (first + b) * 34;
        I codes[8];
        if (b % 2 == 0)
#pragma GCC unroll 16
            for (int i = 0; i < lanes; ++i) __builtin_prefetch(rows.row[i] + at + n * 34, 0, 2);
        transpose_32_bytes(rows.row, at + 2, codes);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) store_i(panel + (v * 8 + j) * lanes * 4, codes[j]);
        store(reinterpret_cast<float*>(panel + V * 8 * lanes * 4) + v * lanes, gather_f16(rows.row, at));
    }
}
