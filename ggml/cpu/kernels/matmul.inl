// One block of a matmul: chooses streaming or a panel, and finishes with bias and residual.
// The choice changes where weights pass through, never an output's order of operations.

constexpr int64_t panel_columns = tile_vecs * lanes;     // of a float panel
constexpr int64_t code_columns = int_tile_vecs * lanes;  // of a panel of codes
constexpr int64_t block_rows = 256;                      // most rows of a block
constexpr int64_t panel_bytes = 256 * 1024;              // fits the second-level cache beside the activations
constexpr int64_t small_panel_bytes = 64 * 1024;
constexpr int64_t small_rows = 48;  // up to here panels are small: filling and using them alternate quickly
// Up to here a group of weights is streamed for every stream_rows rows, from the cache after the first time:
// cheaper than a panel, and the weights pass through memory once.
constexpr int64_t streamed_rows = 4 * stream_rows;
// Most panels that share the words of a tile's activations.
constexpr int64_t word_panels = word_sums ? 4 : 1;
constexpr int64_t tile_bytes =
    block_rows * 4 *
    (word_panels * code_columns > panel_columns ? word_panels * code_columns : panel_columns);

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

// Columns from n0 on as `groups` groups of `lanes` weight rows, one behind the other: they lie so, or are
// packed into `memory`.
inline const std::byte* packed_group(const MatmulBlock& b, int64_t n0, std::byte* memory,
                                     int64_t groups = 1) {
    if (b.packed) return b.w + n0 * b.w_stride;
    const auto bytes = static_cast<int64_t>(packed_group_bytes(*b.type, b.k));
    for (int64_t g = 0; g < groups; ++g, n0 += lanes) {
        const int64_t n = b.n - n0 < lanes ? b.n - n0 : lanes;
        pack_group(*b.type, b.w + n0 * b.w_stride, b.w_stride, n, b.k, memory + g * bytes);
    }
    return memory;
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
// last product, column after column: where rows are few, more groups fill that time.
template <class Rows>
inline void stream_packed(const MatmulBlock& b, const Activations<Rows>& a, std::byte* memory = nullptr) {
    if (b.m <= 2) return stream_groups<Rows, 2, 4>(b, a, memory);
    stream_groups<Rows, stream_rows, 2>(b, a, memory);
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

template <class Fmt>
inline void stream_codes(const MatmulBlock& b) {
    alignas(64) float c[stream_rows * lanes];
    for (int64_t n0 = 0; n0 < b.n; n0 += lanes) {
        const int64_t n = b.n - n0 < lanes ? b.n - n0 : lanes;
        const CodeStream<Fmt> source(packed_group(b, n0, b.scratch), b.lookahead);
        for (int64_t r = 0; r < b.m; r += stream_rows) {
            const int64_t m = b.m - r < stream_rows ? b.m - r : stream_rows;
            int8_rows(m, source, b.k / int8_block, b.xq.tile(r, m, 0, b.k), c, lanes, true);
            finish(b, n0, n, r, m, c, lanes);
        }
    }
}

// By `panels` panels of codes at a time.
template <class Fmt, bool words = false>
inline void panel_codes(const MatmulBlock& b, int64_t panels = 1) {
    using Stream = CodeStream<Fmt>;
    using Panel = CodePanel<int_tile_vecs, Stream, words>;
    const int64_t columns = panels * code_columns, blocks = b.k / int8_block;
    // K is cut into parts alike, of which the panels and the words of a tile's activations fit the memory.
    const int64_t most = panel_bytes / (panels * Panel::block_bytes + Panel::word_bytes);
    const int64_t parts = (blocks + most - 1) / most, depth = (blocks + parts - 1) / parts;
    const auto panel_of = [&](int64_t column) {
        return Panel{b.scratch + column / code_columns * depth * Panel::block_bytes};
    };
    std::byte* const activations = b.scratch + panels * depth * Panel::block_bytes;
    float* c = reinterpret_cast<float*>(b.scratch + panel_bytes);
    for (int64_t n0 = 0; n0 < b.n; n0 += columns) {
        const int64_t n = b.n - n0 < columns ? b.n - n0 : columns;
        const int64_t whole = (n + code_columns - 1) / code_columns * code_columns;
        for (int64_t first = 0; first < blocks; first += depth) {
            const int64_t count = blocks - first < depth ? blocks - first : depth;
            for (int64_t at = 0; at < whole; at += lanes) {
                const int64_t group = at < n ? at : 0;  // a missing group repeats the first
                const std::byte* w = packed_group(b, n0 + group, b.scratch + panel_bytes + tile_bytes);
                const auto v = static_cast<int>(at % code_columns / lanes);
                panel_of(at).fill(Stream(w, b.lookahead), first, count, v);
            }
            for (int64_t r = 0; r < b.m; r += stream_rows) {
                const int64_t m = b.m - r < stream_rows ? b.m - r : stream_rows;
                Int8Rows x = b.xq.tile(r, m, first, b.k);
                x.q = Panel::activations(x.q, count * m, activations);
                for (int64_t at = 0; at < n; at += code_columns)
                    int8_rows(m, panel_of(at), count, x, c + r * columns + at, columns, first == 0);
            }
        }
        finish(b, n0, n, 0, b.m, c, columns);
    }
}

// Words are worth it where panels share those of the activations. Of weights that are not packed every part
// of K would pack them again, and words make parts small.
template <class Fmt>
inline void choose_panels(const MatmulBlock& b) {
    if constexpr (CodeStream<Fmt>::wants_words) {
        const int64_t panels = (b.n + code_columns - 1) / code_columns;
        if (b.packed && panels > 1)
            return panel_codes<Fmt, true>(b, panels < word_panels ? panels : word_panels);
    }
    panel_codes<Fmt>(b);
}

inline bool has_int8_path(const TypeInfo& type) {
    bool has = false;
    visit_format(type.type, [&]<class Fmt>() { has = code_layout<Fmt>().bits > 0; });
    return has;
}

inline Operand operand_of(const TypeInfo& type) { return has_int8_path(type) ? Operand::int8 : Operand::f32; }

inline size_t matmul_scratch(const TypeInfo& type, int64_t k, bool packed) {
    const bool repacks = !packed && has_int8_path(type);
    return static_cast<size_t>(panel_bytes + tile_bytes) + (repacks ? packed_group_bytes(type, k) : 0);
}

inline void matmul_block(const MatmulBlock& b) {
    visit_format(b.type->type, [&]<class Fmt>() {
        if constexpr (Fmt::dot == DotClass::real) {
            using Rows = RowsOf<Fmt>;
            if (b.packed && b.m <= streamed_rows) return stream_packed<Rows>(b, {b.x, b.x_stride, b.k});
            return b.m <= stream_rows ? stream_real<Rows>(b) : panel_real(b);
        } else if constexpr (code_layout<Fmt>().bits > 0) {
            return b.m <= streamed_rows ? stream_codes<Fmt>(b) : choose_panels<Fmt>(b);
        } else {
            return panel_real(b);
        }
    });
}
