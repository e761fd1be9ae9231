// What attention reads of a KV cache without decoding rows first: values along a row, keys down a tile's
// columns. A number of a block type is its code times the block's scale, which f32 holds exactly; so it is
// the same number.

// The memory that is read so much later: where a head's keys or values end within a page of the cache the
// next head's begin, which the processor does not foresee behind a page of memory.
constexpr int64_t cache_ahead = 4096;

// Each type: the numbers and bytes of a block; V vectors of a row from number i on (a multiple of `lanes`,
// and of 32 where that is less than V vectors); and one block of `lanes` keys, whose columns are numbered
// from its first.
template <class Rows>
struct FloatCache {
    static constexpr int64_t block = 1, bytes = Rows::bytes;
    static constexpr int parts = 1;

    static F numbers(const std::byte* p) {
        if constexpr (std::is_same_v<Rows, F32Rows>) return load(reinterpret_cast<const float*>(p));
        const auto* h = reinterpret_cast<const uint16_t*>(p);
        return std::is_same_v<Rows, F16Rows> ? load_f16(h) : load_bf16(h);
    }
    template <int V>
    static void value(const std::byte* row, int64_t i, F (&x)[V]) {
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) x[v] = numbers(row + (i + v * lanes) * bytes);
    }
    struct Keys {
        const std::byte* at;
        Keys(const std::byte* block_of_tile, int64_t key) : at(block_of_tile + key * bytes) {}
        F column(int, int64_t) const { return numbers(at); }
        [[gnu::always_inline]] void prefetch(int, int64_t) const { __builtin_prefetch(at + cache_ahead); }
    };
};

struct Int8Cache {
    static constexpr int64_t block = 32, bytes = 34;
    static constexpr int parts = 1;

    static F codes(const std::byte* p) { return load_i8(reinterpret_cast<const int8_t*>(p)); }
    template <int V>
    static void value(const std::byte* row, int64_t i, F (&x)[V]) {
        const std::byte* first = row + i / block * bytes;
        const int64_t at = V * lanes >= block ? 0 : i % block;
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            const std::byte* p = first + (at + v * lanes) / block * bytes;
            x[v] = set1(one_f16(p)) * codes(p + 2 + (at + v * lanes) % block);
        }
    }
    struct Keys {
        F scale;
        const std::byte* at;
        Keys(const std::byte* block_of_tile, int64_t key)
            : scale(load_f16(reinterpret_cast<const uint16_t*>(block_of_tile) + key)),
              at(block_of_tile + 2 * key_tile_rows + key) {}
        F column(int, int64_t i) const { return scale * codes(at + i * key_tile_rows); }
        [[gnu::always_inline]] void prefetch(int, int64_t i) const { __builtin_prefetch(at + i * key_tile_rows + cache_ahead); }
    };
};

// A byte holds number i of a block in its low half and number i + 16 in its high half.
struct Int4Cache {
    static constexpr int64_t block = 32, bytes = 18;
    static constexpr int parts = 2;  // stretches of columns: the low halves, the high halves

    static F codes(const std::byte* p, bool high) {
        const I both = load_u8(p);
        return to_float(high ? shift_right<4>(both) : and_i(both, set1_i(15))) - set1(8);
    }
    template <int V>
    static void value(const std::byte* row, int64_t i, F (&x)[V]) {
        const std::byte* first = row + i / block * bytes;
        const int64_t at = V * lanes >= block ? 0 : i % block;
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            const std::byte* p = first + (at + v * lanes) / block * bytes;
            const int64_t number = (at + v * lanes) % block;
            x[v] = set1(one_f16(p)) * codes(p + 2 + number % 16, number >= 16);
        }
    }
    struct Keys {
        F scale;
        const std::byte* at;
        Keys(const std::byte* block_of_tile, int64_t key)
            : scale(load_f16(reinterpret_cast<const uint16_t*>(block_of_tile) + key)),
              at(block_of_tile + 2 * key_tile_rows + key) {}
        F column(int part, int64_t i) const { return scale * codes(at + i * key_tile_rows, part == 1); }
        [[gnu::always_inline]] void prefetch(int part, int64_t i) const {
            if (part == 0) __builtin_prefetch(at + i * key_tile_rows + cache_ahead);
        }
    };
};

// Calls fn.operator()<Cache>() for the types above. False for the others.
template <class Fn>
inline bool visit_cache(Type type, Fn fn) {
    if (type == Type::f16) return fn.template operator()<FloatCache<F16Rows>>(), true;
    if (type == Type::bf16) return fn.template operator()<FloatCache<BF16Rows>>(), true;
    if (type == Type::f32) return fn.template operator()<FloatCache<F32Rows>>(), true;
    if (type == Type::q8_0) return fn.template operator()<Int8Cache>(), true;
    if (type == Type::q4_0) return fn.template operator()<Int4Cache>(), true;
    return false;
}

// Calls fn(column, x) for every column of V vectors of keys from key j on, in order. `tiles` starts with key
// 0 of a tile (ggml/program/key_tiles.h); head_dim is `d`.
template <class Cache, int V, class Fn>
[[gnu::always_inline]] inline void each_column(const std::byte* tiles, int64_t d, int64_t j, Fn fn) {
    constexpr int64_t stretch = Cache::block / Cache::parts;
    const int64_t tile_bytes = d / Cache::block * Cache::bytes * key_tile_rows;
    for (int64_t b = 0; b < d; b += Cache::block, tiles += Cache::bytes * key_tile_rows) {
        const auto keys = [&](int v) {
            const int64_t key = j + v * lanes;
            return typename Cache::Keys(tiles + key / key_tile_rows * tile_bytes, key % key_tile_rows);
        };
        typename Cache::Keys of[2] = {keys(0), keys(V - 1)};
#pragma GCC unroll 2
        for (int part = 0; part < Cache::parts; ++part)
            for (int64_t i = 0; i < stretch; ++i) {
                F x[V];
#pragma GCC unroll 2
                for (int v = 0; v < V; ++v) {
                    x[v] = of[v].column(part, i);
                    of[v].prefetch(part, i);
                }
                fn(b + part * stretch + i, x);
            }
    }
}
