// add_product: both factors are packed into panels, of which the registers hold a tile of sums.
// Included into a namespace with Vec, vector_floats, tile_rows and multiply_add(), once per ISA.

constexpr int64_t tile_cols = 2 * vector_floats, depth_block = 256;

// What a panel consists of: here the numbers themselves. Others are several narrower ones, for consecutive k,
// in 32 bits, which are multiplied one by one and all added to the same sum.
struct Reals {
    using Unit = float;
    using Units = Vec;
    static constexpr int64_t size = 1;
    static Unit unit(const float* x, int64_t /*step*/, int64_t /*count*/, float factor) {
        return factor * *x;
    }
};

// panel[k][i] = factor * m(first + i, k0 + k) for i < count, zero up to width; whatever lies side by side in
// memory is read in that order.
template <class P, int64_t width>
inline void pack_panel(const Strided& m, int64_t first, int64_t count, int64_t k0, int64_t depth,
                       float factor, typename P::Unit* panel) {
    const float* from = m.data + first * m.row_step + k0 * m.col_step;
    const int64_t units = (depth + P::size - 1) / P::size;
    if (count < width) __builtin_memset(panel, 0, static_cast<unsigned long>(units * width) * sizeof *panel);
    const auto pack = [&](int64_t u, int64_t i) {
        const int64_t k = u * P::size;
        panel[u * width + i] = P::unit(from + i * m.row_step + k * m.col_step, m.col_step, depth - k, factor);
    };
    if (m.row_step == 1 && count == width) {
        for (int64_t u = 0; u < units; ++u)
            for (int64_t i = 0; i < width; ++i) pack(u, i);
    } else {
        for (int64_t i = 0; i < count; ++i)
            for (int64_t u = 0; u < units; ++u) pack(u, i);
    }
}

template <class V, class T>
inline V load(const T* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
inline void store(float* p, const Vec& v) { __builtin_memcpy(p, &v, sizeof v); }

// c[i][j] += sum over k of a[k][i] * b[k][j] for the first `rows` x `cols` of a tile.
template <class P>
inline void add_tile(const typename P::Unit* a, const typename P::Unit* b, int64_t units, int64_t rows,
                     int64_t cols, float* c, int64_t stride) {
    using Units = typename P::Units;
    Vec sum[tile_rows][2] = {};
    for (int64_t u = 0; u < units; ++u, a += tile_rows, b += tile_cols) {
        const Units b0 = load<Units>(b), b1 = load<Units>(b + vector_floats);
#pragma GCC unroll 16
        for (int i = 0; i < tile_rows; ++i) {
            const Units x = Units{} + a[i];
            sum[i][0] = multiply_add(x, b0, sum[i][0]);
            sum[i][1] = multiply_add(x, b1, sum[i][1]);
        }
    }
    if (rows == tile_rows && cols == tile_cols) {
#pragma GCC unroll 16
        for (int i = 0; i < tile_rows; ++i, c += stride) {
            store(c, load<Vec>(c) + sum[i][0]);
            store(c + vector_floats, load<Vec>(c + vector_floats) + sum[i][1]);
        }
        return;
    }
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j) c[i * stride + j] += sum[i][j / vector_floats][j % vector_floats];
}

inline int64_t scratch_floats(int64_t m) {
    return (m + tile_rows - 1) / tile_rows * tile_rows * depth_block + tile_cols * depth_block;
}

template <class P = Reals>
inline void add_packed_product(const Strided& a, const Strided& b, int64_t m, int64_t n, int64_t depth,
                               float factor, float* c, int64_t stride, float* scratch) {
    const Strided b_by_column{b.data, b.col_step, b.row_step};
    auto* const b_panel = reinterpret_cast<typename P::Unit*>(scratch);
    auto* const a_panels = b_panel + tile_cols * depth_block;
    for (int64_t k0 = 0; k0 < depth; k0 += depth_block) {
        const int64_t k = depth - k0 < depth_block ? depth - k0 : depth_block;
        const int64_t units = (k + P::size - 1) / P::size;
        for (int64_t i = 0; i < m; i += tile_rows)
            pack_panel<P, tile_rows>(a, i, m - i < tile_rows ? m - i : tile_rows, k0, k, factor,
                                     a_panels + i * units);
        for (int64_t j = 0; j < n; j += tile_cols) {
            const int64_t cols = n - j < tile_cols ? n - j : tile_cols;
            pack_panel<P, tile_cols>(b_by_column, j, cols, k0, k, 1, b_panel);
            for (int64_t i = 0; i < m; i += tile_rows)
                add_tile<P>(a_panels + i * units, b_panel, units, m - i < tile_rows ? m - i : tile_rows, cols,
                            c + i * stride + j, stride);
        }
    }
}
