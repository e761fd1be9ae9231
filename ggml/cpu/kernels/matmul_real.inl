// Matmul with float weights: blocks of `lanes` weight rows are transposed so that lanes become outputs.
// Few activation rows: transposed in registers while streaming. Many: into a panel that stays in the cache.

// How `lanes` rows of a 16- or 32-bit float type become columns: fetch() loads and transposes one vector of
// 32-bit units per row; part(unit, p) is column p of a unit.
struct F32Rows : Reals {
    static constexpr int parts = 1;
    static constexpr int64_t bytes = 4;
    static I load_unit(const std::byte* p) { return load_i(p); }
    static F part(I v, int) { return as_float(v); }
};
struct F16Rows : Reals {  // a unit holds two columns
    static constexpr int parts = 2;
    static constexpr int64_t bytes = 2;
    static I load_unit(const std::byte* p) { return load_i(p); }
    static F part(I v, int p) { return p == 0 ? low_f16(v) : high_f16(v); }
};
struct BF16Rows : Reals {
    static constexpr int parts = 2;
    static constexpr int64_t bytes = 2;
    static I load_unit(const std::byte* p) { return load_i(p); }
    static F part(I v, int p) { return p == 0 ? low_bf16(v) : high_bf16(v); }
};

template <class Fmt>
using RowsOf = std::conditional_t<Fmt::type == Type::f32, F32Rows,
                                  std::conditional_t<Fmt::type == Type::f16, F16Rows, BF16Rows>>;

// Pointers to `lanes` rows; missing ones repeat the last, and their results are not stored.
struct RowSet {
    const std::byte* row[lanes];
    RowSet(const std::byte* w, int64_t stride, int64_t n) {
        for (int64_t i = 0; i < lanes; ++i) row[i] = w + (i < n ? i : n - 1) * stride;
    }
};

constexpr int64_t prefetch_bytes = 1024;
// Asks for the lines that the stream reaches after prefetch_bytes; behind a row's end, the row that follows
// by `next_group` bytes.
inline void prefetch_rows(const RowSet& rows, int64_t at, int64_t row_bytes, int64_t next_group) {
    int64_t ahead = at + prefetch_bytes;
    if (ahead >= row_bytes) ahead += next_group - row_bytes;
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) __builtin_prefetch(rows.row[i] + ahead, 0, 2);
}

template <class Rows>
inline void fetch(const RowSet& rows, int64_t k, I (&v)[lanes]) {
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) v[i] = Rows::load_unit(rows.row[i] + k * Rows::bytes);
    transpose(v);
}

// The last n columns (fewer than a fetch takes) through a copy padded with zeros.
template <class Rows>
inline void fetch_tail(const RowSet& rows, int64_t k, int64_t n, I (&v)[lanes]) {
    alignas(64) std::byte copy[lanes][lanes * 4] = {};
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) {
        std::memcpy(copy[i], rows.row[i] + k * Rows::bytes, static_cast<size_t>(n * Rows::bytes));
        v[i] = Rows::load_unit(copy[i]);
    }
    transpose(v);
}

// c[r][0..lanes) = dot products of R activation rows with a group of `lanes` weight rows, streamed once.
// The group that follows lies next_group bytes further on; 0: the caller prefetches.
template <class Rows, int R>
inline void stream_tile(const RowSet& rows, int64_t k, int64_t next_group, const float* x, int64_t ldx,
                        float* c) {
    constexpr int64_t step = lanes * Rows::parts;
    F acc[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[r] = zero();
    int64_t at = 0;
    for (; at + step <= k; at += step) {
        I v[lanes];
        if (next_group) prefetch_rows(rows, at * Rows::bytes, k * Rows::bytes, next_group);
        fetch<Rows>(rows, at, v);
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i)
#pragma GCC unroll 2
            for (int p = 0; p < Rows::parts; ++p) {
                const F w = Rows::part(v[i], p);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r)
                    acc[r] = fma(set1(x[r * ldx + at + i * Rows::parts + p]), w, acc[r]);
            }
    }
    if (at < k) {
        I v[lanes];
        fetch_tail<Rows>(rows, at, k - at, v);
        for (int64_t i = 0; i < k - at; ++i) {
            const F w = Rows::part(v[i / Rows::parts], static_cast<int>(i % Rows::parts));
            for (int r = 0; r < R; ++r) acc[r] = fma(set1(x[r * ldx + at + i]), w, acc[r]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) store(c + r * lanes, acc[r]);
}

// Columns [k0, k0 + n) of a row group -> panel[k - k0][0..lanes) with `ldw` floats from column to column.
template <class Rows>
inline void fill_rows(const RowSet& rows, int64_t k0, int64_t n, float* panel, int64_t ldw) {
    constexpr int64_t step = lanes * Rows::parts;
    for (int64_t at = 0; at < n; at += step) {
        I v[lanes];
        if (n - at >= step) {
            // The same columns of the next panel: they arrive while this one is used.
#pragma GCC unroll 16
            for (int i = 0; i < lanes; ++i)
                __builtin_prefetch(rows.row[i] + (k0 + at + n) * Rows::bytes, 0, 2);
            fetch<Rows>(rows, k0 + at, v);
        } else {
            fetch_tail<Rows>(rows, k0 + at, n - at, v);
        }
        const int64_t count = n - at < step ? n - at : step;
        if (count == step) {
#pragma GCC unroll 16
            for (int i = 0; i < lanes; ++i)
#pragma GCC unroll 2
                for (int p = 0; p < Rows::parts; ++p)
                    store(panel + (at + i * Rows::parts + p) * ldw, Rows::part(v[i], p));
        } else {
            for (int64_t i = 0; i < count; ++i)
                store(panel + (at + i) * ldw,
                      Rows::part(v[i / Rows::parts], static_cast<int>(i % Rows::parts)));
        }
    }
}

// k numbers of each row of activations, as the weights in Rows are multiplied by.
template <class Rows>
struct Activations {
    const typename Rows::Number* x;
    int64_t stride, k;
    Activations from(int64_t row) const { return {x + row * stride, stride, k}; }
};

// The packed layout: units of 32 bits of every row of a group in turn. V groups, one behind the other from w,
// give independent chains of sums where few activation rows leave the multiply-adds waiting for each other.
template <class Rows, int R, int V>
inline void packed_tile(const MatmulBlock& b, const std::byte* w, const Activations<Rows>& a, float* c,
                        int64_t ldc) {
    const int64_t group_bytes = (a.k + Rows::parts - 1) / Rows::parts * lanes * 4;
    const bool asks = R >= b.streaming.real_rows;
    F acc[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) acc[r][v] = zero();
    int64_t at = 0;
    for (; at + Rows::parts <= a.k; at += Rows::parts, w += lanes * 4) {
        I unit[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            if (asks)
                ask_ahead<lanes * 4>(w + v * group_bytes, b.streaming.bytes, b.streaming.first_level,
                                     b.streaming.by_levels);
            unit[v] = load_i(w + v * group_bytes);
        }
#pragma GCC unroll 2
        for (int p = 0; p < Rows::parts; ++p)
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) {
                const auto column = Rows::part(unit[v], p);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r)
                    acc[r][v] =
                        Rows::multiply_add(Rows::broadcast(a.x + r * a.stride + at + p), column, acc[r][v]);
            }
    }
    if (at < a.k)  // an odd last column
        for (int v = 0; v < V; ++v) {
            const auto column = Rows::part(load_i(w + v * group_bytes), 0);
            for (int r = 0; r < R; ++r)
                acc[r][v] = Rows::multiply_add(Rows::broadcast(a.x + r * a.stride + at), column, acc[r][v]);
        }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) store(c + r * ldc + v * lanes, acc[r][v]);
}

// `rows` <= R activation rows.
template <class Rows, int R, int V>
inline void packed_rows(const MatmulBlock& b, int64_t rows, const std::byte* w, const Activations<Rows>& a,
                        float* c, int64_t ldc) {
    if (rows == R) return packed_tile<Rows, R, V>(b, w, a, c, ldc);
    if constexpr (R > 1) packed_rows<Rows, R - 1, V>(b, rows, w, a, c, ldc);
}

// Columns [k0, k0 + n) of a packed group -> panel[k - k0][0..lanes); k0 is even.
template <class Rows>
inline void fill_packed(const std::byte* group, int64_t k0, int64_t n, float* panel, int64_t ldw) {
    const std::byte* w = group + k0 / Rows::parts * lanes * 4;
    for (int64_t at = 0; at < n; at += Rows::parts, w += lanes * 4) {
        const I unit = load_i(w);
#pragma GCC unroll 2
        for (int p = 0; p < Rows::parts; ++p)
            if (at + p < n) store(panel + (at + p) * ldw, Rows::part(unit, p));
    }
}
