// Products of pairs of rows with SMMLA (Armv8.6-A i8mm): twice the multiply-adds of SDOT per instruction.
// One instruction multiplies two weight rows by two activation rows, eight columns each.
constexpr int dot_rows = 2;
struct WeightPairs {
    I low, high;  // rows 0 and 1, rows 2 and 3: eight columns of each
};
// From quads j and j + 1, four columns of each of the four rows.
inline WeightPairs weight_pairs(I a, I b) { return {vzip1q_s32(a, b), vzip2q_s32(a, b)}; }
// Eight columns of two activation rows. low: weight rows 0 and 1, each with both of them; high: rows 2 and 3.
inline void dot_pair(I& low, I& high, const WeightPairs& w, const int8_t* first, const int8_t* second) {
    const int8x16_t x = vcombine_s8(vld1_s8(first), vld1_s8(second));
    asm("smmla %0.4s, %1.16b, %2.16b" : "+w"(low) : "w"(w.low), "w"(x));
    asm("smmla %0.4s, %1.16b, %2.16b" : "+w"(high) : "w"(w.high), "w"(x));
}
// Of the first and of the second activation row, with all four weight rows.
inline I first_of_pair(I low, I high) { return vuzp1q_s32(low, high); }
inline I second_of_pair(I low, I high) { return vuzp2q_s32(low, high); }
