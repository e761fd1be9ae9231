// Products of int8 quadruples with AVX512-VNNI: weights shifted by 128 to unsigned.
// The surplus 128 * sum(x) is taken off where the sum starts (Int8Rows::offset).
struct W {
    I shifted;
};
constexpr int32_t weight_offset = 128;
inline W prepare(I w) { return {_mm512_xor_si512(w, _mm512_set1_epi8(-128))}; }
inline I dot(I acc, const W& w, I x) { return _mm512_dpbusd_epi32(acc, w.shifted, x); }
