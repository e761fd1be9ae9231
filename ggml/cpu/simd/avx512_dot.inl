// Products of int8 quadruples on AVX-512BW without VNNI, by the multiply-add of unsigned and signed bytes.
// Its 16-bit sums must not saturate: |w| * |x| * 2 <= 128 * 127 * 2.
constexpr int32_t weight_offset = 0;
constexpr int dot_rows = 1;
constexpr bool short_sums = true;
constexpr bool word_sums = false;           // its two units would need as many instructions
constexpr bool widening_multiplies = true;  // sums of 16 bits are widened by a product
constexpr int int_tile_vecs = 1;
constexpr bool dots_by_quad = false;
struct UnsignedW {
    I w;  // at most 7 bits
};
struct SignedW {
    I magnitude;
    __mmask64 negative;
};
inline UnsignedW unsigned_weights(I w) { return {w}; }
inline SignedW signed_weights(I w) { return {_mm512_abs_epi8(w), _mm512_movepi8_mask(w)}; }
inline I short_dot(const UnsignedW& w, I x) { return _mm512_maddubs_epi16(w.w, x); }
inline I short_dot(const SignedW& w, I x) {
    return _mm512_maddubs_epi16(w.magnitude, _mm512_mask_sub_epi8(x, w.negative, _mm512_setzero_si512(), x));
}
template <class W>
inline I short_dot(I acc, const W& w, I x) {
    return settled(_mm512_add_epi16(acc, short_dot(w, x)));
}
inline I add_widened(I acc, I sums, I factors = _mm512_set1_epi16(1)) {
    return _mm512_add_epi32(acc, _mm512_madd_epi16(sums, factors));
}
template <int i>  // word i of each lane, twice
inline I word_twice(I words) {
    constexpr int a = 2 * i, b = a + 1;
    return _mm512_shuffle_epi8(
        words, _mm512_broadcast_i32x4(_mm_setr_epi8(a, b, a, b, a + 4, b + 4, a + 4, b + 4, a + 8, b + 8,
                                                    a + 8, b + 8, a + 12, b + 12, a + 12, b + 12)));
}
