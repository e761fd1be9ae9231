// Products of int8 quadruples on NEON without dot products, through 16-bit products and pairwise sums.
// A sum of two products fits 16 bits: |w| * |x| * 2 <= 128 * 127 * 2.
constexpr int32_t weight_offset = 0;
constexpr int dot_rows = 1;
struct Weights {
    int8x16_t w;
};
inline Weights unsigned_weights(I w) { return {vreinterpretq_s8_s32(w)}; }  // at most 7 bits
inline Weights signed_weights(I w) { return {vreinterpretq_s8_s32(w)}; }
inline I dot(I acc, const Weights& w, I x) {
    const int8x16_t q = vreinterpretq_s8_s32(x);
    const int16x8_t low = vmull_s8(vget_low_s8(w.w), vget_low_s8(q));
    return vpadalq_s16(acc, vpaddq_s16(low, vmull_high_s8(w.w, q)));
}
