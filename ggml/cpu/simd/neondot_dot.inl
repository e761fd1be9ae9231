// Products of int8 quadruples with SDOT (Armv8.2-A dotprod).
// As assembly, because clang before 16 declares the intrinsic only where the whole file has the extension.
constexpr int32_t weight_offset = 0;
constexpr bool short_sums = false;
constexpr bool word_sums = false;
constexpr bool widening_multiplies = false;
constexpr int int_tile_vecs = 1;
constexpr bool dots_by_quad = true;  // there is dot_quad()
struct Weights {
    I w;
};
inline Weights unsigned_weights(I w) { return {w}; }  // at most 7 bits
inline Weights signed_weights(I w) { return {w}; }
// The products with quad `i` of four in x.
template <int i>
inline I dot_quad(I acc, const Weights& w, I x) {
    asm("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(acc) : "w"(w.w), "w"(x), "n"(i));
    return acc;
}
