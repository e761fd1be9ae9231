// Products of int8 quadruples on AVX2, by the multiply-add of unsigned and signed bytes.
// Its 16-bit sums must not saturate: |w| * |x| * 2 <= 128 * 127 * 2.
constexpr int32_t weight_offset = 0;
constexpr int dot_rows = 1;
struct UnsignedW {
    I w;  // at most 7 bits
};
struct SignedW {
    I magnitude, w;
};
inline UnsignedW unsigned_weights(I w) { return {w}; }
inline SignedW signed_weights(I w) { return {_mm256_abs_epi8(w), w}; }
inline I dot(I acc, const UnsignedW& w, I x) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w.w, x), _mm256_set1_epi16(1)));
}
inline I dot(I acc, const SignedW& w, I x) {
    return dot(acc, UnsignedW{w.magnitude}, _mm256_sign_epi8(x, w.w));
}
