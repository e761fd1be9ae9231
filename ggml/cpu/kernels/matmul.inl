// One block of a matmul: chooses streaming or a panel, and finishes with bias and residual.
// The choice changes where weights pass through, never an output's order of operations.

constexpr int64_t panel_columns = tile_vecs * lanes;     // of a float panel
constexpr int64_t int8_columns = int_tile_vecs * lanes;  // of an int8 panel
constexpr int64_t block_rows = 256;                      // most rows of a block
constexpr int64_t panel_bytes = 256 * 1024;              // fits the second-level cache beside the activations
constexpr int64_t small_panel_bytes = 64 * 1024;
constexpr int64_t small_rows = 48;  // up to here panels are small: packing and using them alternate quickly
constexpr int64_t tile_bytes = block_rows * panel_columns * 4;

// out[r][0..n) = c[r] + bias + residual for m rows from row r0 and columns from n0.
inline void finish(const MatmulBlock& b, int64_t n0, int64_t n, int64_t r0, int64_t m, const float* c,
                   int64_t ldc) {
    for (int64_t r = 0; r < m; ++r, c += ldc) {
        const float* residual = b.residual ? b.residual + (r0 + r) * b.residual_stride + n0 : nullptr;
        float* out = b.out + (r0 + r) * b.out_stride + n0;
        for (int64_t i = 0; i < n; i += lanes) {
            const int64_t count = n - i < lanes ? n - i : lanes;
            F v = load(c + i);
            if (b.bias) v = v + load_n(b.bias + n0 + i, count);
            if (residual) v = v + load_n(residual + i, count);
            store_n(out + i, v, count);
        }
    }
}

template <class Rows, int R>
inline void stream_columns(const MatmulBlock& b) {
    alignas(64) float c[R * lanes];
    for (int64_t n0 = 0; n0 < b.n; n0 += lanes) {
        const int64_t n = b.n - n0 < lanes ? b.n - n0 : lanes;
        const RowSet rows(b.w + n0 * b.w_stride, b.w_stride, n);
        stream_tile<Rows, R>(rows, b.k, lanes * b.w_stride, b.x, b.x_stride, c);
        finish(b, n0, n, 0, R, c, lanes);
    }
}

// b.m <= R.
template <class Rows, int R = stream_rows>
inline void stream_real(const MatmulBlock& b) {
    if (b.m == R) return stream_columns<Rows, R>(b);
    if constexpr (R > 1) stream_real<Rows, R - 1>(b);
}

inline void pack_real(const MatmulBlock& b, const RowSet& rows, int64_t k0, int64_t n, float* panel) {
    switch (b.type->type) {
        case Type::f32:
            return pack_group<F32Rows>(rows, k0, n, panel, panel_columns);
        case Type::f16:
            return pack_group<F16Rows>(rows, k0, n, panel, panel_columns);
        case Type::bf16:
            return pack_group<BF16Rows>(rows, k0, n, panel, panel_columns);
        default:
            return pack_group_decoded(*b.type, rows, k0, n, panel, panel_columns);
    }
}

inline void panel_real(const MatmulBlock& b) {
    float* panel = reinterpret_cast<float*>(b.scratch);
    float* c = reinterpret_cast<float*>(b.scratch + panel_bytes);
    const int64_t budget = (b.m <= small_rows ? small_panel_bytes : panel_bytes) / (panel_columns * 4);
    // A panel is cut between blocks; 256 is a multiple of every block length.
    const int64_t unit = b.type->block_len == 1 ? 2 * lanes : 256;
    const int64_t depth = budget >= unit ? budget / unit * unit : unit;
    for (int64_t n0 = 0; n0 < b.n; n0 += panel_columns) {
        const int64_t n = b.n - n0 < panel_columns ? b.n - n0 : panel_columns;
        const int64_t cols = (n + lanes - 1) / lanes * lanes;
        for (int64_t k0 = 0; k0 < b.k; k0 += depth) {
            const int64_t k = b.k - k0 < depth ? b.k - k0 : depth;
            for (int64_t g = 0; g < cols; g += lanes)
                pack_real(b, RowSet(b.w + (n0 + g) * b.w_stride, b.w_stride, n - g), k0, k, panel + g);
            fma_block(b.m, cols, b.x + k0, b.x_stride, panel, panel_columns, k, c, panel_columns, k0 == 0);
        }
        finish(b, n0, n, 0, b.m, c, panel_columns);
    }
}

inline void stream_int8(const MatmulBlock& b) {
    alignas(64) float c[stream_rows * lanes];
    const int64_t blocks = b.k / int8_block;
    for (int64_t n0 = 0; n0 < b.n; n0 += lanes) {
        const int64_t n = b.n - n0 < lanes ? b.n - n0 : lanes;
        const RowSet rows(b.w + n0 * b.w_stride, b.w_stride, n);
        const Q8Stream source{&rows, blocks * 34, lanes * b.w_stride, {}, {}};
        int8_rows<stream_rows, 1>(b.m, source, blocks, b.xq, 0, 0, b.k, c, lanes, true);
        finish(b, n0, n, 0, b.m, c, lanes);
    }
}

inline void panel_int8(const MatmulBlock& b) {
    using Panel = Int8Panel<int_tile_vecs>;
    float* c = reinterpret_cast<float*>(b.scratch + panel_bytes);
    const int64_t blocks = b.k / int8_block;
    const int64_t depth = (b.m <= small_rows ? small_panel_bytes : panel_bytes) / Panel::block_bytes;
    for (int64_t n0 = 0; n0 < b.n; n0 += int8_columns) {
        const int64_t n = b.n - n0 < int8_columns ? b.n - n0 : int8_columns;
        for (int64_t first = 0; first < blocks; first += depth) {
            const int64_t count = blocks - first < depth ? blocks - first : depth;
            for (int v = 0; v < int_tile_vecs; ++v) {
                const int64_t at = v * lanes < n ? v * lanes : n - 1;  // a missing group repeats the last row
                pack_int8<int_tile_vecs>(RowSet(b.w + (n0 + at) * b.w_stride, b.w_stride, n - at), first,
                                         count, v, b.scratch);
            }
            for (int64_t r = 0; r < b.m; r += int_tile_rows)
                int8_rows<int_tile_rows, int_tile_vecs>(b.m - r < int_tile_rows ? b.m - r : int_tile_rows,
                                                        Panel{b.scratch}, count, b.xq, r, first, b.k,
                                                        c + r * int8_columns, int8_columns, first == 0);
        }
        finish(b, n0, n, 0, b.m, c, int8_columns);
    }
}

inline bool has_int8_path(const TypeInfo& type) { return type.type == Type::q8_0; }

inline void matmul_block(const MatmulBlock& b) {
    if (has_int8_path(*b.type)) return b.m <= stream_rows ? stream_int8(b) : panel_int8(b);
    if (b.m > stream_rows) return panel_real(b);
    switch (b.type->type) {
        case Type::f32:
            return stream_real<F32Rows>(b);
        case Type::f16:
            return stream_real<F16Rows>(b);
        case Type::bf16:
            return stream_real<BF16Rows>(b);
        default:
            return panel_real(b);
    }
}
