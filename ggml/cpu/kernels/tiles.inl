// Many rows of int8 products through tiles (AMX): included after the kernels by instruction sets that have
// the class Tiles. The integers of a block are exact and blocks add up in order, so a row's result is to the
// last bit that of the streamed path.

// Codes around zero: tiles take both sides signed, and so need no sums of the activations.
template <class Fmt>
struct SignedStream : CodeStream<Fmt> {
    using CodeStream<Fmt>::CodeStream;
    I codes(int v, int j) const { return sub_i8(CodeStream<Fmt>::codes(v, j), CodeStream<Fmt>::zero); }
};

// Most blocks whose products wait for their scales: 8 KiB at 8 rows. With a panel of 16 KiB and 8 rows of
// activations they stay in the first-level cache.
constexpr int64_t tile_blocks = 16;
constexpr int64_t tile_panel_bytes = 16 * 1024;

// The products of R activation rows with consecutive blocks of a panel, as a source of int8_tile.
template <class Panel, int R>
struct TileProducts {
    static constexpr int vectors = 1, halves = Panel::halves, zero = 0, prefetched_rows = 0;
    static constexpr bool has_min = Panel::has_min;
    static constexpr int64_t per_block = int64_t{halves} * R * lanes;

    Panel panel;
    const int32_t* products;
    const int32_t* at = nullptr;

    void begin(int64_t block) {
        panel.begin(block);
        at = products + block * per_block;
    }
    F scale(int v, int h) const { return panel.scale(v, h); }
    F min(int v, int h) const { return panel.min(v, h); }
};

// What tiles have already added up; chosen over the products of vectors by its first operand.
template <int R, int V, int n, class Panel>
inline void add_products(const TileProducts<Panel, R>& source, int first, const int8_t*, I (&sums)[V][R]) {
    static_assert(V == 1);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sums[0][r] = load_i(source.at + (first / n * R + r) * lanes);
}

template <class Panel>
using TilesOf = Tiles<int8_block / Panel::halves>;

// A tile of R activation rows against blocks [0, n) of the panel.
template <int R, class Panel>
inline void tile_of_rows(TilesOf<Panel>& tiles, Panel panel, int64_t n, const int8_t* q,
                         const Int8Block* blocks, const Int8Halves* halves, float* c, int64_t ldc,
                         bool from_zero) {
    constexpr int H = Panel::halves, k = int8_block / H;
    using Products = TileProducts<Panel, R>;
    alignas(64) int32_t products[tile_blocks * Products::per_block];
    tiles.configure(R);
    for (int64_t first = 0; first < n; first += tile_blocks) {
        const int64_t count = n - first < tile_blocks ? n - first : tile_blocks;
        const std::byte* codes = panel.panel;
        for (int64_t i = 0; i < count * H; ++i) {
            const int8_t* x = q + i / H * R * int8_block + i % H * k;
            const std::byte* w = codes + i / H * Panel::block_bytes + i % H * (k * lanes);
            int32_t* out = products + i * R * lanes;
            if (i % 2 == 0)
                tiles.template multiply<0>(x, w, out);
            else
                tiles.template multiply<1>(x, w, out);
        }
        int8_tile<R>(Products{panel, products}, count, q, blocks, halves, c, ldc, from_zero && first == 0);
        panel.panel += count * Panel::block_bytes;
        q += count * R * int8_block;
        blocks += count * R;
        halves += count * R;
    }
}

// The tile that starts at row `row` and has `rows` <= R of them, from block `first` on.
template <int R = stream_rows, class Panel>
inline void tiled_rows(TilesOf<Panel>& tiles, int64_t rows, const Panel& panel, int64_t n, const Int8Rows& x,
                       int64_t row, int64_t first, int64_t k, float* c, bool from_zero) {
    if (rows == R) {
        const int64_t at = row * (k / int8_block) + first * R;
        return tile_of_rows<R>(tiles, panel, n, x.q + at * int8_block, x.blocks + at, x.halves + at, c, lanes,
                               from_zero);
    }
    if constexpr (R > 1) tiled_rows<R - 1>(tiles, rows, panel, n, x, row, first, k, c, from_zero);
}

template <class Fmt>
inline void tiled_codes(const MatmulBlock& b) {
    using Stream = SignedStream<Fmt>;
    using Panel = CodePanel<1, Stream::halves, Stream::has_min, true, 0>;
    const Panel panel{b.scratch};
    float* c = reinterpret_cast<float*>(b.scratch + panel_bytes);
    const int64_t blocks = b.k / int8_block, depth = tile_panel_bytes / Panel::block_bytes;
    TilesOf<Panel> tiles;
    for (int64_t n0 = 0; n0 < b.n; n0 += lanes) {
        const Stream stream(packed_group(b, n0, b.scratch + panel_bytes + tile_bytes));
        for (int64_t first = 0; first < blocks; first += depth) {
            const int64_t count = blocks - first < depth ? blocks - first : depth;
            panel.fill(stream, first, count, 0);
            for (int64_t r = 0; r < b.m; r += stream_rows)
                tiled_rows(tiles, b.m - r < stream_rows ? b.m - r : stream_rows, panel, count, b.xq, r, first,
                           b.k, c + r * lanes, first == 0);
        }
        finish(b, n0, b.n - n0 < lanes ? b.n - n0 : lanes, 0, b.m, c, lanes);
    }
}

// Up to here the weights are streamed through vectors: filling a panel for few rows would cost more.
constexpr int64_t streamed_tile_rows = 2 * stream_rows;

inline void tiled_matmul(const MatmulBlock& b) {
    if (b.type->type == Type::bf16) return tiled_bf16(b);
    if (b.m <= streamed_tile_rows || !has_int8_path(*b.type)) return matmul_block(b);
    visit_format(b.type->type, [&]<class Fmt>() {
        if constexpr (code_layout<Fmt>().bits > 0) tiled_codes<Fmt>(b);
    });
}

inline size_t tiled_scratch(const TypeInfo& type, int64_t k, bool packed) {
    return type.type == Type::bf16 ? bf16_scratch(type, k, packed) : matmul_scratch(type, k, packed);
}

// This instruction set's table, with the matmul above.
constexpr KernelTable make_tiled_table(std::string_view name, std::string_view needs,
                                       bool (*available)(const Features&)) {
    KernelTable t = make_table(name, needs, available);
    t.matmul_scratch = tiled_scratch;
    t.matmul = tiled_matmul;
    return t;
}
