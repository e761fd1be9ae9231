// Pairs of bf16 numbers, whose products AVX512-BF16 adds two at a time: twice the rate of f32.
// Both products of a pair are exact; each is added to the sum with one rounding, the second number's first.
struct PairOps {
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
    // In bf16, all lanes or the first n.
    static void store_halves(uint16_t* p, F x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves(x));
    }
    static void store_halves(uint16_t* p, F x, int64_t n) {
        _mm256_mask_storeu_epi16(p, first_lanes(n), halves(x));
    }

  private:
    static __m256i halves(F x) { return __builtin_bit_cast(__m256i, _mm512_cvtneps_pbh(x)); }
};
