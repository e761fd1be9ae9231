// Products of int8 quadruples on NEON without dot products, through 16-bit products and pairwise sums.
// A sum of two products fits 16 bits: |w| * |x| * 2 <= 128 * 127 * 2.
constexpr int32_t weight_offset = 0;
constexpr int dot_rows = 1;
constexpr bool short_sums = true;
constexpr bool word_sums = false;
constexpr bool widening_multiplies = false;
constexpr int int_tile_vecs = 1;
constexpr bool dots_by_quad = false;
struct Weights {
    int8x16_t w;
};
inline Weights unsigned_weights(I w) { return {vreinterpretq_s8_s32(w)}; }  // at most 7 bits
inline Weights signed_weights(I w) { return {vreinterpretq_s8_s32(w)}; }
// Computed where it stands, before the products of what follows.
inline I settled(I sums) {
    asm("" : "+w"(sums));
    return sums;
}
struct ShortSums {
    int16x8_t low, high;
};
inline ShortSums short_dot(const Weights& w, I x) {
    const int8x16_t q = vreinterpretq_s8_s32(x);
    return {vmull_s8(vget_low_s8(w.w), vget_low_s8(q)), vmull_high_s8(w.w, q)};
}
inline ShortSums short_dot(const ShortSums& acc, const Weights& w, I x) {
    const int8x16_t q = vreinterpretq_s8_s32(x);
    return {vmlal_s8(acc.low, vget_low_s8(w.w), vget_low_s8(q)), vmlal_high_s8(acc.high, w.w, q)};
}
inline I add_widened(I acc, const ShortSums& sums) {
    return vpadalq_s16(acc, vpaddq_s16(sums.low, sums.high));
}
