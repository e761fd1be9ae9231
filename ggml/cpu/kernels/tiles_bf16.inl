// Matmul of bf16 weights on tiles, for any number of activation rows: the packed layout is that of a B tile.
// An activation enters as the sum of two bf16 numbers, its upper 16 bits and what is left, rounded: together
// 16 significant bits, whose products with a weight are exact. A sum takes 32 columns at a time, upper parts
// before lower ones, so a row's bits do not depend on the rows beside it.

// Activation rows that are split at once: they stay in the second-level cache while all weights pass.
constexpr int64_t parts_bytes = 1024 * 1024;
constexpr int64_t tile_columns = Bf16Tiles::columns;  // of the weights, in one step
constexpr int64_t tile_groups = Bf16Tiles::groups;    // of weight rows, at once

inline int64_t parts_columns(int64_t k) { return (k + tile_columns - 1) / tile_columns * tile_columns; }
inline int64_t parts_rows(int64_t k) {
    const int64_t most = parts_bytes / (4 * parts_columns(k)) / Bf16Tiles::rows * Bf16Tiles::rows;
    return most < Bf16Tiles::rows ? Bf16Tiles::rows : most < block_rows ? most : block_rows;
}

// n values into n rounded up to a step, filled with zeros.
inline void split_row(const float* x, int64_t n, uint16_t* high, uint16_t* low) {
    const I upper = set1_i(-65536), half = set1_i(0x8000);
    const auto load_some = [&](int64_t at) {
        const int64_t left = n - at;
        return left >= lanes ? load(x + at) : load_n(x + at, left > 0 ? left : 0);
    };
    for (int64_t at = 0; at < n; at += 2 * lanes) {
        I v[2], rest[2];
        for (int i = 0; i < 2; ++i) {
            const F f = load_some(at + i * lanes);
            v[i] = as_int(f);
            rest[i] = add_i(as_int(f - as_float(and_i(v[i], upper))), half);
        }
        store_i(high + at, upper_halves(v[0], v[1]));
        store_i(low + at, upper_halves(rest[0], rest[1]));
    }
}

struct Bf16Parts {
    const uint16_t *high, *low;  // [rows x columns]
    int64_t columns;
};

// 16 columns of each of V groups; the last step of a group may be a copy, with zeros behind its end.
template <int V>
struct Bf16Groups {
    const std::byte* w[V];
    int64_t steps;
    const std::byte* last;  // of every group in turn, or null
};

// c[rows x V lanes], rows of `tile_groups` groups.
template <int V>
inline void multiply_bf16(Bf16Tiles& tiles, const Bf16Groups<V>& g, const uint16_t* high, const uint16_t* low,
                          int64_t columns, float* c) {
    constexpr int64_t bytes = Bf16Tiles::weight_bytes;
    tiles.template zero<V>();
    for (int64_t s = 0; s < g.steps; ++s) {
        tiles.load_rows(high + s * tile_columns, low + s * tile_columns, columns * 2);
        const bool copied = g.last && s + 1 == g.steps;
        const auto weights = [&](int v) { return copied ? g.last + v * bytes : g.w[v] + s * bytes; };
        [&]<int... v>(std::integer_sequence<int, v...>) { (tiles.template multiply<v>(weights(v)), ...); }
        (std::make_integer_sequence<int, V>{});
    }
    tiles.template store<V>(c, tile_groups * lanes);
}

// `count` <= V groups from column n0 on, for `rows` rows from row r0 on.
template <int V = tile_groups>
inline void bf16_columns(const MatmulBlock& b, Bf16Tiles& tiles, int64_t count, int64_t n0, int64_t r0,
                         int64_t rows, const Bf16Parts& x, std::byte* packed) {
    if constexpr (V > 1)
        if (count < V) return bf16_columns<V - 1>(b, tiles, count, n0, r0, rows, x, packed);
    constexpr int64_t bytes = Bf16Tiles::weight_bytes;
    alignas(64) std::byte last[V * bytes];
    alignas(64) float c[Bf16Tiles::rows * tile_groups * lanes];
    Bf16Groups<V> g;
    g.steps = x.columns / tile_columns;
    g.last = b.k % tile_columns ? last : nullptr;
    const auto group_bytes = static_cast<int64_t>(packed_group_bytes(*b.type, b.k));
    for (int v = 0; v < V; ++v) {
        g.w[v] = packed_group(b, n0 + v * lanes, packed + v * group_bytes);
        if (!g.last) continue;
        const int64_t whole = (g.steps - 1) * bytes;
        std::memset(last + v * bytes, 0, static_cast<size_t>(bytes));
        std::memcpy(last + v * bytes, g.w[v] + whole, static_cast<size_t>(group_bytes - whole));
    }
    const int64_t n = b.n - n0 < V * lanes ? b.n - n0 : V * lanes;
    for (int64_t r = 0; r < rows; r += Bf16Tiles::rows) {
        const int64_t m = rows - r < Bf16Tiles::rows ? rows - r : Bf16Tiles::rows;
        tiles.configure(static_cast<int>(m));
        multiply_bf16<V>(tiles, g, x.high + r * x.columns, x.low + r * x.columns, x.columns, c);
        finish(b, n0, n, r0 + r, m, c, tile_groups * lanes);
    }
}

inline void tiled_bf16(const MatmulBlock& b) {
    const int64_t columns = parts_columns(b.k), at_once = parts_rows(b.k);
    auto* const high = reinterpret_cast<uint16_t*>(b.scratch);
    uint16_t* const low = high + at_once * columns;
    std::byte* const packed = reinterpret_cast<std::byte*>(low + at_once * columns);
    Bf16Tiles tiles;
    for (int64_t r0 = 0; r0 < b.m; r0 += at_once) {
        const int64_t rows = b.m - r0 < at_once ? b.m - r0 : at_once;
        for (int64_t r = 0; r < rows; ++r)
            split_row(b.x + (r0 + r) * b.x_stride, b.k, high + r * columns, low + r * columns);
        for (int64_t n0 = 0; n0 < b.n; n0 += tile_groups * lanes)
            bf16_columns(b, tiles, (b.n - n0 + lanes - 1) / lanes, n0, r0, rows, {high, low, columns},
                         packed);
    }
}

inline size_t bf16_scratch(const TypeInfo& type, int64_t k, bool packed) {
    return static_cast<size_t>(4 * parts_rows(k) * parts_columns(k)) +
           (packed ? 0 : tile_groups * packed_group_bytes(type, k));
}
