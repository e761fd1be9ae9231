// Blocks of a matmul with activations in int8: weights in integer codes.
// They are streamed against few rows; for more they fill a panel, or several.

template <class Fmt>
inline void stream_codes(const MatmulBlock& b) {
    alignas(64) float c[stream_rows * CodeStreams<Fmt>::width];
    each_streams<Fmt>(b, b.scratch, [&](const CodeStreams<Fmt>& streams) {
        for (int64_t r = 0; r < b.m; r += stream_rows) {
            const int64_t m = b.m - r < stream_rows ? b.m - r : stream_rows;
            int8_rows(m, streams.of, b.k / int8_block, b.xq.tile(r, m, 0, b.k), c, streams.width, true);
            streams.results(b, r, m, c);
        }
    });
}

// Panels next to each other, each with as many blocks of K.
template <class Panel>
struct CodePanels {
    std::byte* memory;
    int64_t depth, columns;  // blocks; of all panels

    Panel of(int64_t column) const {
        return Panel{memory + column / code_columns * depth * Panel::block_bytes};
    }
    std::byte* end() const { return memory + columns / code_columns * depth * Panel::block_bytes; }
};

// c[m x ldc] (+)= all rows times the first n of these columns, in blocks [first, first + count) of K.
// Formats share it, so it is not inlined.
template <class Panel>
[[gnu::noinline]] inline void multiply_panels(const MatmulBlock& b, const CodePanels<Panel>& panels,
                                              int64_t n, int64_t first, int64_t count, float* c,
                                              int64_t ldc) {
    for (int64_t r = 0; r < b.m; r += stream_rows) {
        const int64_t m = b.m - r < stream_rows ? b.m - r : stream_rows;
        Int8Rows x = b.xq.tile(r, m, first, b.k);
        x.q = Panel::activations(x.q, count * m, panels.end());
        for (int64_t at = 0; at < n; at += code_columns) {
            const Panel panel = panels.of(at);
            int8_rows(m, Neighbours<Panel, 1>{panel}, count, x, c + r * ldc + at, ldc, first == 0);
        }
    }
}

// Rows of gated_columns sums, the gate's in front, as blocks of the next product's activations.
inline void finish_gated(const GatedBlock& b, int64_t n0, float* c) {
    constexpr int64_t n = int8_block;
    const int64_t block = (b.column + n0) / int8_block;
    const auto add = [](float* sums, const float* bias) {
        for (int64_t i = 0; i < n; i += lanes) store(sums + i, load(sums + i) + load(bias + i));
    };
    for (int64_t r = 0; r < b.gate.m; ++r, c += gated_columns) {
        if (b.gate.bias) add(c, b.gate.bias + n0);
        if (b.up_bias) add(c + n, b.up_bias + n0);
        alignas(64) float y[n];
        b.glu(*b.params, c, c + n, y, n);
        const int64_t top = r / stream_rows * stream_rows, left = b.gate.m - top;
        const int64_t height = left < stream_rows ? left : stream_rows;
        const Int8Places to = b.int8.from(top * (b.out_stride / int8_block) + block * height);
        b.quantize(y, n, r - top, height, to.q, to.blocks, to.halves);
    }
}

// By `n_panels` panels of codes at a time. Of a gated unit, whose gate b is, the sums of as many columns of
// what it gates lie beside the gate's.
template <class Fmt, bool words = false>
inline void panel_codes(const MatmulBlock& b, int64_t n_panels = 1, const GatedBlock* gated = nullptr) {
    using Stream = CodeStream<Fmt>;
    using Panel = CodePanel<panel_kind<Stream>(int_tile_vecs, words)>;
    const int64_t columns = n_panels * code_columns, blocks = b.k / int8_block;
    // K is cut into parts alike, of which the panels and the words of a tile's activations fit the memory.
    const int64_t most = panel_bytes / (n_panels * Panel::block_bytes + Panel::word_bytes);
    const int64_t parts = (blocks + most - 1) / most, depth = (blocks + parts - 1) / parts;
    const CodePanels<Panel> panels{b.scratch, depth, columns};
    float* const c = reinterpret_cast<float*>(b.scratch + panel_bytes);
    const int64_t step = gated ? gated_columns / 2 : columns, c_columns = gated ? gated_columns : columns;
    for (int64_t n0 = 0; n0 < b.n; n0 += step) {
        const int64_t n = gated || b.n - n0 > columns ? c_columns : b.n - n0;
        const auto packed = [&](int64_t at) {
            return at < step ? packed_group(b, n0 + at, b.scratch + panel_bytes + tile_bytes)
                             : gated->up + (n0 + at - step) * b.w_stride;
        };
        for (int64_t c0 = 0; c0 < n; c0 += columns) {
            const int64_t wanted = n - c0 < columns ? n - c0 : columns;
            const int64_t whole = (wanted + code_columns - 1) / code_columns * code_columns;
            for (int64_t first = 0; first < blocks; first += depth) {
                const int64_t count = blocks - first < depth ? blocks - first : depth;
                for (int64_t at = 0; at < whole; at += lanes) {
                    const std::byte* const w = packed(at < wanted ? c0 + at : c0);  // any for a missing group
                    const auto v = static_cast<int>(at % code_columns / lanes);
                    panels.of(at).fill(Stream(w, *b.type->layout, b.streaming), first, count, v);
                }
                multiply_panels(b, panels, wanted, first, count, c + c0, c_columns);
            }
        }
        gated ? finish_gated(*gated, n0, c) : finish(b, n0, n, 0, b.m, c, columns);
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

inline void code_block(const MatmulBlock& b) {
    visit_codes<short_sums>(b.type->type, [&]<class Fmt>() {
        b.m <= streamed_rows ? stream_codes<Fmt>(b) : choose_panels<Fmt>(b);
    });
}

inline void gated_codes(const GatedBlock& b) {
    visit_codes<short_sums>(b.gate.type->type, [&]<class Fmt>() {
        constexpr bool words = CodeStream<Fmt>::wants_words;
        panel_codes<Fmt, words>(b.gate, words ? word_panels : 1, &b);
    });
}

inline size_t code_scratch(const TypeInfo& type, int64_t k, bool packed) {
    return static_cast<size_t>(panel_bytes + tile_bytes) +
           (packed ? 0 : most_streams * packed_group_bytes(type, k));
}
