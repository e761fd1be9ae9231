// Products of int8 quadruples on AVX2, by the multiply-add of unsigned and signed bytes.
// Its 16-bit sums must not saturate: |w| * |x| * 2 <= 128 * 127 * 2.
constexpr int32_t weight_offset = 0;
constexpr int dot_rows = 1;
constexpr bool short_sums = true;
constexpr bool word_sums = true;            // there are even_words(), odd_words() and word_dot()
constexpr bool widening_multiplies = true;  // sums of 16 bits are widened by a product
constexpr int int_tile_vecs = 2;            // of a panel; they share what is read of the activations
constexpr bool dots_by_quad = false;
struct UnsignedW {
    I w;  // at most 7 bits
};
struct SignedW {
    I magnitude, w;
};
inline UnsignedW unsigned_weights(I w) { return {w}; }
inline SignedW signed_weights(I w) { return {_mm256_abs_epi8(w), w}; }
// Computed where it stands: GCC would make all products first and keep them in memory.
inline I settled(I sums) {
    asm("" : "+x"(sums));
    return sums;
}
inline I short_dot(const UnsignedW& w, I x) { return _mm256_maddubs_epi16(w.w, x); }
inline I short_dot(const SignedW& w, I x) {
    return _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x, w.w));
}
template <class W>
inline I short_dot(I acc, const W& w, I x) {
    return settled(_mm256_add_epi16(acc, short_dot(w, x)));
}
inline I add_widened(I acc, I sums, I factors = _mm256_set1_epi16(1)) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(sums, factors));
}
template <int i>  // word i of each lane, twice
inline I word_twice(I words) {
    constexpr int a = 2 * i, b = a + 1;
    return _mm256_shuffle_epi8(
        words, _mm256_broadcastsi128_si256(_mm_setr_epi8(a, b, a, b, a + 4, b + 4, a + 4, b + 4, a + 8, b + 8,
                                                         a + 8, b + 8, a + 12, b + 12, a + 12, b + 12)));
}
// Of every four codes the first and third, and the others, as numbers of 16 bits: one instruction for two
// products that need no sign turned and nothing widened, where three are needed for four.
inline I even_words(I codes) { return _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8); }
inline I odd_words(I codes) { return _mm256_srai_epi16(codes, 8); }
inline I word_dot(I acc, I w, I x) { return settled(_mm256_add_epi32(acc, _mm256_madd_epi16(w, x))); }
