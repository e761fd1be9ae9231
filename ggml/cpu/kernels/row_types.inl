// The types whose rows kernels read without a codec: numbers along a row, keys down the columns of a tile.
// Code times scale is exact in f32, so these are the codec's numbers to the last bit.

// Each type: the numbers, bytes and parts of a block; whether its numbers are bf16; the v-th of V vectors of
// a row from number i on (a multiple of `lanes`, and of 32 where that is less than V vectors); and a block of
// `lanes` keys, whose columns are numbered from its first.
template <Type type>
struct FloatRow {
    static constexpr int64_t block = 1, bytes = type == Type::f32 ? 4 : 2;
    static constexpr int parts = 1;
    static constexpr bool bf16 = type == Type::bf16;

    static F numbers(const std::byte* p) {
        if constexpr (type == Type::f32) return load(reinterpret_cast<const float*>(p));
        const auto* h = reinterpret_cast<const uint16_t*>(p);
        return type == Type::f16 ? load_f16(h) : load_bf16(h);
    }
    template <int V>
    [[gnu::always_inline]] static F value(const std::byte* row, int64_t i, int v) {
        return numbers(row + (i + v * lanes) * bytes);
    }
    struct Keys {
        const std::byte* at;
        Keys(const std::byte* block_of_tile, int64_t key) : at(block_of_tile + key * bytes) {}
        const std::byte* bytes_of(int64_t) const { return at; }
        F column(int, int64_t) const { return numbers(at); }
    };
};

struct Int8Codes {
    static constexpr int64_t bytes = 32;
    static constexpr int parts = 1;
    static F load(const std::byte* p, int) { return to_float(load_s8(p)); }
};

// A byte holds number i of a block in its low half and number i + 16 in its high half.
struct Int4Codes {
    static constexpr int64_t bytes = 16;
    static constexpr int parts = 2;
    static F load(const std::byte* p, int part) {
        const I both = load_u8(p);
        return to_float(part == 1 ? shift_right<4>(both) : and_i(both, set1_i(15))) - set1(8);
    }
};

// 32 numbers that share a scale in f16, in front of their codes. Codes come in parts: number i of a block is
// byte i % Codes::bytes of part i / Codes::bytes.
template <class Codes>
struct ScaledRow {
    static constexpr int64_t block = 32, bytes = 2 + Codes::bytes;
    static constexpr int parts = Codes::parts;
    static constexpr bool bf16 = false;

    template <int V>
    [[gnu::always_inline]] static F value(const std::byte* row, int64_t i, int v) {
        const int64_t at = (V * lanes >= block ? 0 : i % block) + v * lanes, number = at % block;
        const std::byte* p = row + (i / block + at / block) * bytes;
        const F codes = Codes::load(p + 2 + number % Codes::bytes, static_cast<int>(number / Codes::bytes));
        return set1(one_f16(p)) * codes;
    }
    struct Keys {
        F scale;
        const std::byte* at;
        Keys(const std::byte* block_of_tile, int64_t key)
            : scale(load_f16(reinterpret_cast<const uint16_t*>(block_of_tile) + key)),
              at(block_of_tile + 2 * key_tile_rows + key) {}
        const std::byte* bytes_of(int64_t i) const { return at + i * key_tile_rows; }
        F column(int part, int64_t i) const { return scale * Codes::load(bytes_of(i), part); }
    };
};

// Calls fn.operator()<Row>() for the types above, which are also those of fits_key_tiles(). False for the
// others.
template <class Fn>
inline bool visit_row(Type type, Fn fn) {
    if (type == Type::f16) return fn.template operator()<FloatRow<Type::f16>>(), true;
    if (type == Type::bf16) return fn.template operator()<FloatRow<Type::bf16>>(), true;
    if (type == Type::f32) return fn.template operator()<FloatRow<Type::f32>>(), true;
    if (type == Type::q8_0) return fn.template operator()<ScaledRow<Int8Codes>>(), true;
    if (type == Type::q4_0) return fn.template operator()<ScaledRow<Int4Codes>>(), true;
    return false;
}

// Calls fn(i, x) for every number i of P in the columns of V vectors of keys from key j on, in order. `tiles`
// starts with key 0 of a tile (ggml/program/key_tiles.h); head_dim is `d`, a multiple of P::size. `asks`: for
// the memory `ahead` of what it reads.
template <class P, class Row, int V, bool asks, class Fn>
[[gnu::always_inline]] inline void each_column(const std::byte* tiles, int64_t d, int64_t j, int64_t ahead,
                                               Fn fn) {
    static_assert(V <= 2);
    constexpr int column_vecs = key_tile_rows > lanes ? key_tile_rows / lanes : 1;
    constexpr int64_t column_bytes =
        (V < column_vecs ? V : column_vecs) * lanes * (Row::block == 1 ? Row::bytes : 1);
    constexpr int64_t stretch = Row::block / Row::parts, block = Row::block > P::size ? Row::block : P::size;
    const int64_t tile_bytes = d / Row::block * Row::bytes * key_tile_rows;
    for (int64_t b = 0; b < d; b += block, tiles += block / Row::block * Row::bytes * key_tile_rows) {
        const auto keys = [&](int v, int64_t of) {
            const int64_t key = j + v * lanes;
            return
                typename Row::Keys(tiles + key / key_tile_rows * tile_bytes + of * Row::bytes * key_tile_rows,
                                   key % key_tile_rows);
        };
        // Once for each part of a column that lies in one piece.
        const auto ask = [&](int part, auto bytes_of) __attribute__((always_inline)) {
            if (!asks || part > 0) return;
            for (int v = 0; v < V; v += column_vecs)
                for (int s = 0; s < P::size; ++s)
                    prefetch_lines<column_bytes, second_level>(bytes_of(v, s) + ahead);
        };
        typename P::Vector x[V];
        if constexpr (Row::block == 1) {
#pragma GCC unroll 2
            for (int v = 0; v < V; ++v)
                x[v] = P::template gather<Row>([&](int s) { return keys(v, s).column(0, 0); });
            ask(0, [&](int v, int s) { return keys(v, s).bytes_of(0); });
            fn(b / P::size, x);
        } else {
            typename Row::Keys of[2] = {keys(0, 0), keys(V - 1, 0)};
#pragma GCC unroll 2
            for (int part = 0; part < Row::parts; ++part)
                for (int64_t i = 0; i < stretch; i += P::size) {
#pragma GCC unroll 2
                    for (int v = 0; v < V; ++v)
                        x[v] = P::template gather<Row>([&](int s) { return of[v].column(part, i + s); });
                    ask(part, [&](int v, int s) { return of[v].bytes_of(i + s); });
                    fn((b + part * stretch + i) / P::size, x);
                }
        }
    }
}

// n elements of any decodable type -> f32; equal to the type's codec bit by bit.
inline void decode_row(const TypeInfo& type, const std::byte* src, float* dst, int64_t n) {
    int64_t i = 0;
    visit_row(type.type, [&]<class Row>() {
        constexpr int V = Row::block == 1 ? 1 : lanes >= 8 ? 32 / lanes : 4;
        for (; i + V * lanes <= n; i += V * lanes) {
            F x[V];
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) x[v] = Row::template value<V>(src, i, v);
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) store(dst + i + v * lanes, x[v]);
        }
    });
    if (i < n) type.decode(src + i / type.block_len * type.block_bytes, dst + i, static_cast<size_t>(n - i));
}
