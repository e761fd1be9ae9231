// Blocks of a matmul with float activations: weights in reals, and all others that are decoded to them.
// Weights are streamed against few rows; for more they fill a panel.

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

// Any decodable type: rows are decoded a superblock at a time and packed as f32.
inline void fill_decoded(const TypeInfo& type, const RowSet& rows, int64_t k0, int64_t n, float* panel,
                         int64_t ldw) {
    constexpr int64_t chunk = 256;  // a multiple of every block length
    alignas(64) float decoded[lanes][chunk];
    const int64_t start = k0 / type.block_len * type.block_bytes,
                  step = chunk / type.block_len * type.block_bytes;
    for (int64_t at = 0; at < n; at += chunk) {
        const int64_t count = n - at < chunk ? n - at : chunk;
        for (int i = 0; i < lanes; ++i)
            decode_row(type, rows.row[i] + start + at / chunk * step, decoded[i], count);
        const RowSet f32(reinterpret_cast<const std::byte*>(decoded), sizeof decoded[0], lanes);
        fill_rows<F32Rows>(f32, 0, count, panel + at * ldw, ldw);
    }
}

template <class Rows>
inline void fill_real(const MatmulBlock& b, int64_t n0, int64_t k0, int64_t k, float* panel) {
    if (b.packed) return fill_packed<Rows>(b.w + n0 * b.w_stride, k0, k, panel, panel_columns);
    fill_rows<Rows>(RowSet(b.w + n0 * b.w_stride, b.w_stride, b.n - n0), k0, k, panel, panel_columns);
}

// The group of columns from n0 as f32; columns [k0, k0 + k).
inline void fill_panel(const MatmulBlock& b, int64_t n0, int64_t k0, int64_t k, float* panel) {
    switch (b.type->type) {
        case Type::f32:
            return fill_real<F32Rows>(b, n0, k0, k, panel);
        case Type::f16:
            return fill_real<F16Rows>(b, n0, k0, k, panel);
        case Type::bf16:
            return fill_real<BF16Rows>(b, n0, k0, k, panel);
        default:
            return fill_decoded(*b.type, RowSet(b.w + n0 * b.w_stride, b.w_stride, b.n - n0), k0, k, panel,
                                panel_columns);
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
            for (int64_t g = 0; g < cols; g += lanes) fill_panel(b, n0 + g, k0, k, panel + g);
            fma_block(b.m, cols, b.x + k0, b.x_stride, panel, panel_columns, k, c, panel_columns, k0 == 0);
        }
        finish(b, n0, n, 0, b.m, c, panel_columns);
    }
}

inline void real_block(const MatmulBlock& b) {
    visit_format(b.type->type, [&]<class Fmt>() {
        if constexpr (Fmt::dot == DotClass::real) {
            using Rows = RowsOf<Fmt>;
            if (b.packed && b.m <= streamed_rows) return stream_packed<Rows>(b, {b.x, b.x_stride, b.k});
            if (b.m <= stream_rows) return stream_real<Rows>(b);
        }
        panel_real(b);
    });
}

inline size_t real_scratch(const TypeInfo&, int64_t, bool) {
    return static_cast<size_t>(panel_bytes + tile_bytes);
}
