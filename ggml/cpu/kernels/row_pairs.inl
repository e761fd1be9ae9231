// Products of two rows of activations at a time, for instructions that multiply two rows by two: vectors of
// sums are those of dot_pair() from the first block to the last, so that nothing is sorted in between.

// What the products take of a block of two rows of a tile, which lie in pairs (see quantize_row()), or of a
// last row without another, which is taken twice. Numbers are vectors [first, second, first, second].
template <bool lone>
struct RowPair {
    const int8_t* q;
    const Int8Block* block;
    const Int8Halves* halves;

    // Row r of a tile's block, and the next one.
    RowPair(int r, const int8_t* tile, const Int8Block* blocks, const Int8Halves* all)
        : q(tile + r * int8_block), block(blocks + r), halves(all + r) {}

    I columns(int quad) const { return lone ? load_twice(q + 4 * quad) : load_i(q + 8 * quad); }  // eight
    F d() const { return lone ? set1(block->d) : numbers(block, 0); }
    F d_sum() const { return lone ? set1(block->d_sum) : numbers(block, 1); }
    I neg_sum() const { return lone ? set1_i(block->neg_sum) : as_int(numbers(block, 2)); }
    F d_sum(int half) const { return lone ? set1(halves->d_sum[half]) : numbers(halves, half); }
    I neg_sum(int half) const {
        return lone ? set1_i(halves->neg_sum[half]) : as_int(numbers(halves, 2 + half));
    }

  private:
    static F numbers(const void* p, int i) {
        return as_float(load_twice(static_cast<const std::byte*>(p) + 8 * i));
    }
};

// What the source has for the four outputs, for low or high sums.
template <bool high, class Vector>
inline Vector of_pairs(Vector outputs) {
    return high ? high_pairs(outputs, outputs) : low_pairs(outputs, outputs);
}

// fn(p, the pair) for pairs p of R rows; the last of an odd number is alone.
template <int R, class Fn>
[[gnu::always_inline]] inline void each_pair(const int8_t* q, const Int8Block* blocks,
                                             const Int8Halves* halves, const Fn& fn) {
#pragma GCC unroll 4
    for (int p = 0; p < R / 2; ++p) fn(p, RowPair<false>(2 * p, q, blocks, halves));
    if constexpr (R % 2 == 1) fn(R / 2, RowPair<true>(R - 1, q, blocks, halves));
}

// sums += the products of vector v and quads [first, last) of a block.
template <int first, int last, int R, class Source>
[[gnu::always_inline]] inline void add_pairs(const Source& source, int v, const int8_t* q,
                                             const Int8Block* blocks, const Int8Halves* halves,
                                             I (&sums)[R + R % 2]) {
    const auto w = source.pairs(v, std::integral_constant<int, first>());
    each_pair<R>(
        q, blocks, halves, [&](int p, const auto& pair) __attribute__((always_inline)) {
            dot_pair(sums[2 * p], sums[2 * p + 1], w, pair.columns(first));
        });
    if constexpr (first + 2 < last) add_pairs<first + 2, last, R>(source, v, q, blocks, halves, sums);
}

// The products of vector v and half h of H of a block, the zero of the codes taken off: of pair p in
// sums[2 * p], low, and sums[2 * p + 1], high.
template <int H, int h, int R, class Source>
[[gnu::always_inline]] inline void sum_pairs(const Source& source, int v, const int8_t* q,
                                             const Int8Block* blocks, const Int8Halves* halves,
                                             I (&sums)[R + R % 2]) {
    each_pair<R>(
        q, blocks, halves, [&](int p, const auto& pair) __attribute__((always_inline)) {
            sums[2 * p] = sums[2 * p + 1] = Source::start(H == 1 ? pair.neg_sum() : pair.neg_sum(h));
        });
    add_pairs<h*(8 / H), (h + 1) * (8 / H), R>(source, v, q, blocks, halves, sums);
}

// add_half() for a tile of pairs.
template <int h, int R, int V, class Source>
[[gnu::always_inline]] inline void add_half_of_pairs(const Source& source, const int8_t* q,
                                                     const Int8Block* blocks, const Int8Halves* halves,
                                                     F (&acc)[R + R % 2][V]) {
    constexpr int H = Source::halves;
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
        I sums[R + R % 2];
        if constexpr (Source::joins) {
            I second[R + R % 2];
            sum_pairs<2, 0, R>(source, v, q, blocks, halves, sums);
            sum_pairs<2, 1, R>(source, v, q, blocks, halves, second);
            const I low = of_pairs<false>(source.integers), high = of_pairs<true>(source.integers);
#pragma GCC unroll 8
            for (int i = 0; i < R + R % 2; ++i)
                sums[i] = source.joined(sums[i], second[i], i % 2 == 0 ? low : high);
        } else {
            sum_pairs<H, h, R>(source, v, q, blocks, halves, sums);
        }
        const auto add = [&]<bool high>() __attribute__((always_inline)) {
            const F scale = of_pairs<high>(source.scale(v, h));
            each_pair<R>(
                q, blocks, halves, [&](int p, const auto& pair) __attribute__((always_inline)) {
                    F& sum = acc[2 * p + high][v];
                    sum = add_scaled<Source>(h, scale, sums[2 * p + high], pair, sum,
                                             [&](int m) { return of_pairs<high>(source.min(v, m)); });
                });
        };
        add.template operator()<false>();
        add.template operator()<true>();
    }
}

// A tile's sums from and to rows of c; a pair's two vectors are low and high of it.
template <int R, int V>
[[gnu::always_inline]] inline void load_pairs(const float* c, int64_t ldc, bool from_zero,
                                              F (&acc)[R + R % 2][V]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; r += 2)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            const F first = from_zero ? zero() : load(c + r * ldc + v * lanes);
            const F second = from_zero || r + 1 == R ? first : load(c + (r + 1) * ldc + v * lanes);
            acc[r][v] = low_pairs(first, second), acc[r + 1][v] = high_pairs(first, second);
        }
}
template <int R, int V>
[[gnu::always_inline]] inline void store_pairs(float* c, int64_t ldc, const F (&acc)[R + R % 2][V]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; r += 2)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            store(c + r * ldc + v * lanes, first_of_pairs(acc[r][v], acc[r + 1][v]));
            if (r + 1 < R) store(c + (r + 1) * ldc + v * lanes, second_of_pairs(acc[r][v], acc[r + 1][v]));
        }
}
