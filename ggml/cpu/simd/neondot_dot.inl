// Products of int8 quadruples with SDOT (Armv8.2-A dotprod).
// As assembly, because clang before 16 declares the intrinsic only where the whole file has the extension.
constexpr int32_t weight_offset = 0;
constexpr bool short_sums = false;
constexpr bool word_sums = false;
constexpr int int_tile_vecs = 1;
struct Weights {
    I w;
};
inline Weights unsigned_weights(I w) { return {w}; }  // at most 7 bits
inline Weights signed_weights(I w) { return {w}; }
inline I dot(I acc, const Weights& w, I x) {
    asm("sdot %0.4s, %1.16b, %2.16b" : "+w"(acc) : "w"(w.w), "w"(x));
    return acc;
}
