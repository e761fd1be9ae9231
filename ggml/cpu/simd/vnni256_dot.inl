// Products of int8 quadruples with AVX-VNNI, which takes unsigned weights: signed codes are stored with 128
// added, and the sums start at -128 * sum(x).
constexpr int32_t weight_offset = 128;
constexpr bool short_sums = false;
constexpr bool word_sums = false;
constexpr bool widening_multiplies = false;
constexpr int int_tile_vecs = 2;  // of a panel; they share what is read of the activations
constexpr bool dots_by_quad = false;
constexpr int dot_rows = 1;
struct Weights {
    I w;
};
inline Weights unsigned_weights(I w) { return {w}; }
inline Weights signed_weights(I w) { return {w}; }
inline I dot(I acc, const Weights& w, I x) { return _mm256_dpbusd_avx_epi32(acc, w.w, x); }
