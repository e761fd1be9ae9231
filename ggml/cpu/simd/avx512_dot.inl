// Products of int8 quadruples on AVX-512BW without VNNI: |w| unsigned times x with the sign of w.
// 128 * 127 * 2 fits 16 bits, so the saturating multiply-add never saturates.
struct W {
    I magnitude;
    __mmask64 negative;
};
constexpr int32_t weight_offset = 0;
inline W prepare(I w) { return {_mm512_abs_epi8(w), _mm512_movepi8_mask(w)}; }
inline I dot(I acc, const W& w, I x) {
    const I signed_x = _mm512_mask_sub_epi8(x, w.negative, _mm512_setzero_si512(), x);
    const I pairs = _mm512_maddubs_epi16(w.magnitude, signed_x);
    return _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
