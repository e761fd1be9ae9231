// Many rows of int8 products through tiles (AMX): included after the kernels by instruction sets that have
// the class Tiles. The integers of a block are exact and blocks add up in order, so a row's result is to the
// last bit that of the streamed path.

// Codes around zero: tiles take both sides signed, and so need no sums of the activations.
template <class Fmt>
struct SignedStream : CodeStream<Fmt> {
    using Base = CodeStream<Fmt>;
    using Base::Base;
    static constexpr bool panel_signed = true;
    static constexpr int panel_zero = 0;
    I panel_codes(int j) const { return sub_i8(Base::panel_codes(j), Base::panel_zero); }
};

// Tiles of two groups of weight rows meet those of two tiles of activation rows, so that what is loaded is
// used twice. A slice is what a tile holds of K: a block, or half of one where scales belong to halves.
constexpr int tile_pair = 2;
// Slices whose sums wait for their scales, while tiles make those of the next as many. Tiles and vectors work
// at the same time only as far as the processor looks ahead, so a slice and a part of what waits take turns.
constexpr int64_t chunk_slices = tile_pair * tile_pair;
template <class Panel>
constexpr int64_t chunk_blocks = chunk_slices / Panel::halves;
// With a panel of so much, two chunks of sums (16 KiB) and their activations stay in the first-level cache.
constexpr int64_t tile_panel_bytes = 16 * 1024;

// Sums that tiles made of R activation rows and vector `vector` of a panel, as a source of int8_tile.
template <class Panel, int R>
struct TileSums {
    static constexpr int vectors = 1, halves = Panel::halves, min_halves = Panel::min_halves, zero = 0;
    static constexpr bool streams = false, has_words = false, joins = false;
    static constexpr int64_t row_block = int8_block;
    static constexpr bool has_min = Panel::has_min;

    Panel panel;
    int vector;
    const int32_t* sums;  // [slice][row][lanes]
    const int32_t* at = nullptr;

    void begin(int64_t block) {
        panel.begin(block);
        at = sums + block * halves * R * lanes;
    }
    F scale(int, int h) const { return panel.scale(vector, h); }
    F min(int, int h) const { return panel.min(vector, h); }
};

// What tiles have already added up; chosen over the products of vectors by its first operand.
template <int R, int V, int n, class Panel>
inline void add_products(const TileSums<Panel, R>& source, int first, const int8_t*, I (&sums)[V][R]) {
    static_assert(V == 1);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sums[0][r] = load_i(source.at + (first / n * R + r) * lanes);
}

template <class Panel>
using TilesOf = Tiles<int8_block / Panel::halves>;

// What is multiplied in one go: a chunk of K of A tiles of rows. `count` is 0 if there is nothing.
struct TileUnit {
    int64_t row, block, count;  // the first row; blocks of the panel
    int32_t* sums;              // [tile of rows][vector of weights][slice][row][lanes]
};

// Rows [row, row + n A R), in tiles of R rows, against all `blocks` of the panel, which are those of K from
// `first` on.
template <int R, int A, class Panel>
inline void multiply_tiles(TilesOf<Panel>& tiles, const Panel& panel, int64_t blocks, const Int8Rows& x,
                           int64_t row, int64_t n, int64_t first, int64_t k, float* c) {
    constexpr int H = Panel::halves, columns = int8_block / H;
    constexpr int64_t most = chunk_blocks<Panel>, slice = int64_t{R} * lanes, width = tile_pair * lanes;
    alignas(64) int32_t sums[2][A * tile_pair * chunk_slices * slice];
    const int64_t chunks = (blocks + most - 1) / most, units = n * chunks;
    const auto unit_at = [&](int64_t i) {
        const int64_t block = i % chunks * most, left = blocks - block;
        return TileUnit{row + i / chunks * A * R, block, left < most ? left : most, sums[i % 2]};
    };
    const auto tile = [&](const TileUnit& u, int a) { return x.tile(u.row + a * R, R, first + u.block, k); };
    const auto multiply = [&](const TileUnit& u, int64_t block, int64_t half) {
        const int8_t* rows[A];
        for (int a = 0; a < A; ++a) rows[a] = tile(u, a).q + block * R * int8_block + half * columns;
        tiles.multiply(rows, panel.panel + (u.block + block) * Panel::block_bytes + half * (columns * lanes),
                       Panel::vector_bytes);
    };
    const auto add = [&](const TileUnit& u, int a, int v) {
        const Panel from{panel.panel + u.block * Panel::block_bytes};
        const TileSums<Panel, R> source{from, v, u.sums + (a * tile_pair + v) * chunk_slices * slice};
        int8_tile<R>(source, u.count, tile(u, a), c + (u.row + a * R) * width + v * lanes, width,
                     first + u.block == 0);
    };
    tiles.configure(R);
    TileUnit now{}, before{};
    int32_t* pending = nullptr;  // where the sums in registers belong
    for (int64_t i = 0; i <= units; ++i) {
        before = now;
        now = i < units ? unit_at(i) : TileUnit{};
        for (int s = 0; s < chunk_slices; ++s) {
            if (pending) tiles.template store<A>(pending, chunk_slices * slice);
            const bool more = s < now.count * H;
            pending = more ? now.sums + s * slice : nullptr;
            if (more) multiply(now, s / H, s % H);
            if (before.count > 0 && s < A * tile_pair) add(before, s / tile_pair, s % tile_pair);
        }
    }
}

// The last tile of a block, of `rows` <= R rows.
template <int R = stream_rows, class Panel>
inline void multiply_last(TilesOf<Panel>& tiles, int64_t rows, const Panel& panel, int64_t blocks,
                          const Int8Rows& x, int64_t row, int64_t first, int64_t k, float* c) {
    if (rows == R) return multiply_tiles<R, 1>(tiles, panel, blocks, x, row, 1, first, k, c);
    if constexpr (R > 1) multiply_last<R - 1>(tiles, rows, panel, blocks, x, row, first, k, c);
}

template <class Fmt>
inline void tiled_codes(const MatmulBlock& b) {
    using Stream = SignedStream<Fmt>;
    using Panel = CodePanel<tile_pair, Stream>;
    constexpr int64_t width = tile_pair * lanes, pair_rows = tile_pair * stream_rows;
    constexpr int64_t whole = chunk_blocks<Panel>;
    constexpr int64_t depth = tile_panel_bytes / Panel::block_bytes / whole * whole;
    const Panel panel{b.scratch};
    float* c = reinterpret_cast<float*>(b.scratch + panel_bytes);
    std::byte* const packed = b.scratch + panel_bytes + tile_bytes;
    const int64_t blocks = b.k / int8_block, pairs = b.m / pair_rows;
    TilesOf<Panel> tiles;
    for (int64_t n0 = 0; n0 < b.n; n0 += width) {
        const int64_t n = b.n - n0 < width ? b.n - n0 : width;
        const int64_t second = n > lanes ? n0 + lanes : n0;  // a missing group repeats the first
        const Stream streams[] = {
            Stream(packed_group(b, n0, packed), b.lookahead),
            Stream(packed_group(b, second, packed + (b.packed ? 0 : packed_group_bytes(*b.type, b.k))),
                   b.lookahead)};
        for (int64_t first = 0; first < blocks; first += depth) {
            const int64_t count = blocks - first < depth ? blocks - first : depth;
            for (int v = 0; v < tile_pair; ++v) panel.fill(streams[v], first, count, v);
            multiply_tiles<stream_rows, tile_pair>(tiles, panel, count, b.xq, 0, pairs, first, b.k, c);
            for (int64_t r = pairs * pair_rows; r < b.m; r += stream_rows)
                multiply_last(tiles, b.m - r < stream_rows ? b.m - r : stream_rows, panel, count, b.xq, r,
                              first, b.k, c);
        }
        finish(b, n0, n, 0, b.m, c, width);
    }
}

// Up to here the weights are streamed through vectors: filling a panel for few rows would cost more.
constexpr int64_t streamed_tile_rows = 2 * stream_rows;

// Of bf16, tiles take any number of rows, so that one row has the bits of many, but only whole steps of K.
inline bool fits_pair_tiles(int64_t k) { return (k + 1) / TilePairs::size % TilePairs::depth == 0; }

// Everything that tiles do not multiply is left to the kernels of namespace borrowed.
inline void tiled_matmul(const MatmulBlock& b) {
    if (b.type->type == Type::bf16 && fits_pair_tiles(b.k)) return multiply_pairs<TilePairs>(b);
    if (b.m <= streamed_tile_rows || !has_int8_path(*b.type)) return borrowed::matmul.block(b);
    visit_format(b.type->type, [&]<class Fmt>() {
        if constexpr (code_layout<Fmt>().bits > 0) tiled_codes<Fmt>(b);
    });
}

inline size_t tiled_scratch(const TypeInfo& type, int64_t k, bool packed) {
    const size_t other = borrowed::matmul.scratch(type, k, packed);
    if (!has_int8_path(type)) return other;
    const size_t own = static_cast<size_t>(panel_bytes + tile_bytes) +
                       (packed ? 0 : tile_pair * packed_group_bytes(type, k));
    return own > other ? own : other;
}

constexpr MatmulKernels matmul_kernels{.operand = paired_operand,
                                       .round = round_row,
                                       .shape = {panel_columns, block_rows},
                                       .scratch = tiled_scratch,
                                       .block = tiled_matmul};
