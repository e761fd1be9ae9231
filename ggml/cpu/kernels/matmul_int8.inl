// Matmul of integer-coded weights with int8 activations in blocks of 32.
// Lanes are outputs: a 32-bit lane takes four k at a time, a block's integer sum is exact, blocks add up in
// order; so a result depends neither on the source of the codes nor on the rows beside it.

template <bool is_signed>
inline auto prepare(I codes) {
    if constexpr (is_signed)
        return signed_weights(codes);
    else
        return unsigned_weights(codes);
}

// Four activations, in every lane.
inline I four_of(const int8_t* q) {
    int32_t four;
    std::memcpy(&four, q, 4);
    return set1_i(four);
}

// The ways to add up products of V vectors of weights and R rows of activations: sums[v][r] += the products
// of n quads of a block, from the constant `first` on. Vectors share what is read of the activations.

template <class Source>
using WeightsOf = decltype(prepare<Source::is_signed>(std::declval<Source>().codes(0, Constant<0>())));

// In 16 bits, which are widened before they could overflow.
template <int R, int V, int first, int n, class Source>
[[gnu::always_inline]] inline void add_short(const Source& source, const int8_t* q, I (&sums)[V][R]) {
    constexpr int quads = Source::short_quads;
    using Weights = WeightsOf<Source>;
    using Short = decltype(short_dot(std::declval<Weights>(), set1_i(0)));
    each_of<n / quads>([&](auto run) __attribute__((always_inline)) {
        constexpr Constant<(first + run * quads) / 4> half;
        Short part[V][R];
        each_of<quads>([&](auto i) __attribute__((always_inline)) {
            constexpr int j = first + run * quads + i;
            Weights w[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) w[v] = prepare<Source::is_signed>(source.codes(v, Constant<j>()));
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const I x = four_of(q + r * int8_block + 4 * j);
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v)
                    part[v][r] = i == 0 ? short_dot(w[v], x) : short_dot(part[v][r], w[v], x);
            }
        });
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r)
                if constexpr (Source::widens)
                    sums[v][r] = settled(add_widened(sums[v][r], part[v][r], source.factors(v, half)));
                else
                    sums[v][r] = settled(add_widened(sums[v][r], part[v][r]));
    });
}

// In words, of a whole block: vector j of the codes and words j of the activations are the even ones of quad
// j / 2, or the odd ones. Of each row's block of activations the even ones come before the odd ones.
template <int R, int V, class Source>
inline void add_words(const Source& source, const int8_t* words, I (&sums)[V][R]) {
    static_assert(Source::halves == 1);
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
        I w[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) w[v] = source.codes(v, j);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const I x = four_of(words + (2 * r + j % 2) * int8_block + j / 2 * 4);
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) sums[v][r] = word_dot(sums[v][r], w[v], x);
        }
    }
}

// By the instruction that adds four products to a sum of 32 bits.
template <int R, int V, int first, int n, class Source>
[[gnu::always_inline]] inline void add_dots(const Source& source, const int8_t* q, I (&sums)[V][R]) {
    each_of<n>([&](auto i) __attribute__((always_inline)) {
        constexpr int j = first + i;
        WeightsOf<Source> w[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) w[v] = prepare<Source::is_signed>(source.codes(v, Constant<j>()));
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const I x = four_of(q + r * int8_block + 4 * j);
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) sums[v][r] = dot(sums[v][r], w[v], x);
        }
    });
}

// Likewise, where the instruction takes its quad from a vector of four: a row's activations are read by
// vectors.
template <int R, int V, int first, int n, class Source>
[[gnu::always_inline]] inline void add_quads(const Source& source, const int8_t* q, I (&sums)[V][R]) {
    static_assert(n % 4 == 0);
    each_of<n / 4>([&](auto four) __attribute__((always_inline)) {
        constexpr int j = first + 4 * four;
        WeightsOf<Source> w[4][V];
        each_of<4>([&](auto i) __attribute__((always_inline)) {
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v)
                w[i][v] = prepare<Source::is_signed>(source.codes(v, Constant<j + i>()));
        });
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const I x = load_i(q + r * int8_block + 4 * j);
            each_of<4>([&](auto i) __attribute__((always_inline)) {
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) sums[v][r] = dot_quad<i>(sums[v][r], w[i][v], x);
            });
        }
    });
}

template <int R, int V, int first, int n, class Source>
[[gnu::always_inline]] inline void add_products(const Source& source, const int8_t* q, I (&sums)[V][R]) {
    if constexpr (Source::has_words)
        add_words<R, V>(source, q, sums);
    else if constexpr (short_sums)
        add_short<R, V, first, n>(source, q, sums);
    else if constexpr (dots_by_quad)
        add_quads<R, V, first, n>(source, q, sums);
    else
        add_dots<R, V, first, n>(source, q, sums);
}

// The products of half h of H of a block, the zero of the codes taken off.
template <int H, int h, int n, int V, class Source>
[[gnu::always_inline]] inline void sum_half(const Source& source, const int8_t* q, const Int8Block* blocks,
                                            const Int8Halves* halves, I (&sums)[V][n]) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
#pragma GCC unroll 16
        for (int r = 0; r < n; ++r)
            if constexpr (Source::widens && Source::zero > 0)
                sums[v][r] = Source::start(dot_i16(load1_i(&halves[r].neg_words), source.both_factors(v)));
            else
                sums[v][r] = Source::start(load1_i(H == 1 ? &blocks[r].neg_sum : &halves[r].neg_sum[h]));
    add_products<n, V, h*(8 / H), 8 / H>(source, q, sums);
}

// Half h of the block that the source is at, from row r0 of a tile on; so many rows at once as leave their
// sums and those of the whole tile in registers.
template <int h, int r0 = 0, int R, int V, class Source>
[[gnu::always_inline]] inline void add_half(const Source& source, const int8_t* q, const Int8Block* blocks,
                                            const Int8Halves* halves, F (&acc)[R][V]) {
    constexpr int H = Source::halves, most = V == 1 ? R : 4, n = R - r0 < most ? R - r0 : most;
    const int8_t* const rows = q + r0 * Source::row_block;
    I sums[V][n];
    if constexpr (Source::joins) {
        I second[V][n];
        sum_half<2, 0>(source, rows, blocks + r0, halves + r0, sums);
        sum_half<2, 1>(source, rows, blocks + r0, halves + r0, second);
#pragma GCC unroll 16
        for (int r = 0; r < n; ++r) sums[0][r] = source.joined(sums[0][r], second[0][r], source.integers);
    } else {
        sum_half<H, h>(source, rows, blocks + r0, halves + r0, sums);
    }
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
        const F scale = source.scale(v, h);
#pragma GCC unroll 16
        for (int r = 0; r < n; ++r) {
            F& sum = acc[r0 + r][v];
            sum = add_scaled(source, v, h, scale, sums[v][r], blocks[r0 + r], halves[r0 + r], sum);
        }
    }
    if constexpr (r0 + n < R) add_half<h, r0 + n>(source, q, blocks, halves, acc);
}

// Whether rows are multiplied two at a time: all of a tile, if it has more than one. Panels are made for
// that.
template <int R, class Source>
constexpr bool in_pairs = dot_rows == 2 && (R > 1 || Source::has_pairs);

// On to what lies so many blocks of activations behind, all rows of a tile counted.
template <class Source>
inline void skip(Int8Rows& x, int64_t blocks) {
    x.q += blocks * Source::row_block, x.blocks += blocks, x.halves += blocks;
}

// A tile of R activation rows against `n` blocks of a source, from block `first` on, which x begins with.
// Inlined by force, like int8_rows() below: called, it would get its arguments through memory, which wait
// behind all weights that are still on their way.
template <int R, class Source>
[[gnu::always_inline]] inline void int8_tile(Source source, int64_t first, int64_t n, Int8Rows x, float* c,
                                             int64_t ldc, bool from_zero) {
    constexpr int V = Source::vectors;
    constexpr bool pairs = in_pairs<R, Source>;  // see kernels/row_pairs.inl
    F acc[pairs ? R + R % 2 : R][V];
    if constexpr (pairs)
        load_pairs<R>(c, ldc, from_zero, acc);
    else
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) acc[r][v] = from_zero ? zero() : load(c + r * ldc + v * lanes);
    constexpr int64_t together = Source::together;
    for (int64_t b = first; n > 0; b += together, n -= together) {
        if constexpr (together > 1) source.enter(b / together);
        for (int64_t i = 0; i < (n < together ? n : together); ++i, skip<Source>(x, R)) {
            if constexpr (Source::streams)
                if (R >= source.ahead_rows) source.prefetch(b + i);
            if constexpr (together > 1)
                source.begin_in_span(i);
            else
                source.begin(b);
            each_of<Source::halves>([&](auto h) __attribute__((always_inline)) {
                if constexpr (pairs)
                    add_half_of_pairs<h, R>(source, x.q, x.blocks, x.halves, acc);
                else
                    add_half<h>(source, x.q, x.blocks, x.halves, acc);
            });
        }
    }
    if constexpr (pairs) return store_pairs<R>(c, ldc, acc);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) store(c + r * ldc + v * lanes, acc[r][v]);
}

// One row against G streams, block after block of all: what each adds up stays in registers.
template <class Stream, int G>
[[gnu::always_inline]] inline void int8_row_of_all(const Neighbours<Stream, G>& streams, int64_t n,
                                                   Int8Rows x, float* c, bool from_zero) {
    F acc[G][1][1];
    each_of<G>([&](auto g) __attribute__((always_inline)) {
        acc[g][0][0] = from_zero ? zero() : load(c + g * lanes);
    });
    for (int64_t b = 0; b < n; ++b, skip<Stream>(x, 1))
        each_of<G>([&](auto g) __attribute__((always_inline)) {
            Stream stream = streams[g];
            if (stream.ahead_rows <= 1) stream.prefetch(b);
            stream.begin(b);
            each_of<Stream::halves>([&](auto h) __attribute__((always_inline)) {
                add_half<h>(stream, x.q, x.blocks, x.halves, acc[g]);
            });
        });
    each_of<G>([&](auto g) __attribute__((always_inline)) { store(c + g * lanes, acc[g][0][0]); });
}

// One row against one stream, two blocks written out side by side: fewer addresses to compute.
template <class Stream>
[[gnu::always_inline]] inline void int8_row(Stream stream, int64_t n, Int8Rows x, float* c, bool from_zero) {
    static_assert(Stream::blocks % 2 == 0);
    F acc[1][1] = {{from_zero ? zero() : load(c)}};
    const auto add_block = [&](int64_t in_span) __attribute__((always_inline)) {
        stream.begin_in_span(in_span);
        each_of<Stream::halves>([&](auto h) __attribute__((always_inline)) {
            add_half<h>(stream, x.q, x.blocks, x.halves, acc);
        });
        skip<Stream>(x, 1);
    };
    const int64_t spans = n / Stream::blocks, left = n % Stream::blocks;
    for (int64_t s = 0; s < spans; ++s) {
        stream.enter(s);
        for (int64_t i = 0; i < Stream::blocks; i += 2) {
            if (stream.ahead_rows <= 1) stream.template prefetch<2, true>(s * Stream::blocks + i);
            add_block(i), add_block(i + 1);
        }
    }
    if (left > 0) stream.enter(spans);
    for (int64_t i = 0; i < left; ++i) add_block(i);
    store(c, acc[0][0]);
}

// A tile of `rows` <= R. Several streams are multiplied in turn.
template <int R = stream_rows, class Source, int G>
[[gnu::always_inline]] inline void int8_rows(int64_t rows, const Neighbours<Source, G>& sources, int64_t n,
                                             const Int8Rows& x, float* c, int64_t ldc, bool from_zero) {
    if constexpr (R > 1)
        if (rows < R) return int8_rows<R - 1>(rows, sources, n, x, c, ldc, from_zero);
    if constexpr (R == 1 && Source::streams && G == 1) {
        int8_row(sources.first, n, x, c, from_zero);
    } else if constexpr (G == 1) {
        int8_tile<R>(sources.first, 0, n, x, c, ldc, from_zero);
    } else {
        if constexpr (R == 1) {
            if (sources.n == 1) return int8_row(sources.first, n, x, c, from_zero);
            if (sources.n == G) return int8_row_of_all(sources, n, x, c, from_zero);
        }
        const int64_t turn = sources.n == 1 ? n : Source::turn;
        Int8Rows at = x;
        for (int64_t b = 0; b < n; b += turn, skip<Source>(at, turn * R))
            for (int64_t g = 0; g < sources.n; ++g) {
                Source source = sources[g];
                if (sources.n > 1)
                    source.far = source.in_turn.bytes, source.near = source.in_turn.first_level;
                int8_tile<R>(source, b, b + turn < n ? turn : n - b, at, c + g * lanes, ldc,
                             from_zero && b == 0);
            }
    }
}
