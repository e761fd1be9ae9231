// Pairs of bf16 numbers, whose products AVX512-BF16 adds two at a time: twice the rate of f32.
// Both products of a pair are exact; each is added to the sum with one rounding, the second number's first.
struct Pairs {
    struct Multiplier;
    using Number = int32_t;  // the first of two numbers in the lower half
    using Vector = I;
    static constexpr int size = 2;
    static constexpr int64_t depth = 1;
    static I read(const int32_t* p) { return load_i(p); }
    static void write(int32_t* p, I x) { store_i(p, x); }
    static I broadcast(const int32_t* x) {  // which may have been written as numbers of 16 bits
        int32_t pair;
        std::memcpy(&pair, x, sizeof pair);
        return set1_i(pair);
    }
    static F multiply_add(I x, I w, F sum) {
        return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, x), __builtin_bit_cast(__m512bh, w));
    }
    // Lane by lane, rounded to nearest even. Numbers that are bf16 already need no rounding.
    template <bool exact = false>
    [[gnu::always_inline]] static I join(F first, F second) {
        if constexpr (exact) return or_i(shift_right<16>(as_int(first)), as_int(second));
        const I order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        return _mm512_permutexvar_epi16(order, __builtin_bit_cast(I, _mm512_cvtne2ps_pbh(second, first)));
    }
    // The same, but of two numbers as near the one farther from zero, and in half the time. Of NaNs those
    // whose upper nine bits of the fraction are not all ones stay NaNs.
    [[gnu::always_inline]] static I join_near(F first, F second) {
        const I half = set1_i(0x8000), low = add_i(as_int(first), half), high = add_i(as_int(second), half);
        const I upper =
            _mm512_broadcast_i32x4(_mm_set_epi8(15, 14, 15, 14, 11, 10, 11, 10, 7, 6, 7, 6, 3, 2, 3, 2));
        return _mm512_mask_shuffle_epi8(high, 0x3333333333333333u, low, upper);
    }
    // `rest` with byte i of every lane of `bytes` as its lane's third byte: without a shift, for which there
    // is one port, the one that multiplies.
    template <int i>
    [[gnu::always_inline]] static I third_byte(I bytes, I rest) {
        const I place =
            _mm512_broadcast_i32x4(_mm_set_epi8(0, 12 + i, 0, 0, 0, 8 + i, 0, 0, 0, 4 + i, 0, 0, 0, i, 0, 0));
        return _mm512_mask_shuffle_epi8(rest, 0x4444444444444444u, bytes, place);
    }
    static void narrow(const float* x, int64_t n, float scale, int32_t* out) {
        for (int64_t i = 0; i < n; i += lanes) {
            const int64_t count = n - i < lanes ? n - i : lanes;
            const F scaled = load_n(x + i, count) * set1(scale);
            _mm256_mask_storeu_epi16(reinterpret_cast<uint16_t*>(out) + i, first_lanes(count),
                                     halves(scaled));
        }
    }
    static void store_weights(float* row, int64_t j, F e) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(reinterpret_cast<uint16_t*>(row) + j), halves(e));
    }
    template <class Row, class Fn>
    [[gnu::always_inline]] static I gather(Fn fn) {
        return join<Row::bf16>(fn(0), fn(1));
    }
    template <class Row, int V>
    [[gnu::always_inline]] static void value(const std::byte* rows, int64_t stride, int64_t n, int64_t i,
                                             I (&x)[V]) {
        F first[V], second[V];
        Row::value(rows, i, first);
        if (n > 1) {
            Row::value(rows + stride, i, second);
        } else {
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) second[v] = zero();
        }
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) x[v] = join<Row::bf16>(first[v], second[v]);
    }

  private:
    static __m256i halves(F x) { return __builtin_bit_cast(__m256i, _mm512_cvtneps_pbh(x)); }
};
