// Products of pairs of rows with SMMLA (Armv8.6-A i8mm): twice the multiply-adds of SDOT per instruction.
// One instruction multiplies two weight rows by two activation rows, eight columns each.
constexpr int dot_rows = 2;
struct WeightPairs {
    I low, high;  // rows 0 and 1, rows 2 and 3: eight columns of each
};
// From quads j and j + 1, four columns of each of the four rows.
inline WeightPairs weight_pairs(I a, I b) { return {vzip1q_s32(a, b), vzip2q_s32(a, b)}; }
// Eight columns of two activation rows. low: weight rows 0 and 1, each with both of them; high: rows 2 and 3.
inline void dot_pair(I& low, I& high, const WeightPairs& w, I x) {
    asm("smmla %0.4s, %1.16b, %2.16b" : "+w"(low) : "w"(w.low), "w"(x));
    asm("smmla %0.4s, %1.16b, %2.16b" : "+w"(high) : "w"(w.high), "w"(x));
}
// Eight bytes of two places, or of one twice; they lie where numbers of 32 bits do, or codes.
inline I load_two(const void* first, const void* second) {
    return vreinterpretq_s32_u8(vcombine_u8(vld1_u8(static_cast<const uint8_t*>(first)),
                                            vld1_u8(static_cast<const uint8_t*>(second))));
}
inline I load_twice(const void* p) { return load_two(p, p); }
// Of four weight rows with a first and a second activation row: as low and high of dot_pair(), and back.
inline F low_pairs(F first, F second) { return vzip1q_f32(first, second); }
inline F high_pairs(F first, F second) { return vzip2q_f32(first, second); }
inline I low_pairs(I first, I second) { return vzip1q_s32(first, second); }
inline I high_pairs(I first, I second) { return vzip2q_s32(first, second); }
inline F first_of_pairs(F low, F high) { return vuzp1q_f32(low, high); }
inline F second_of_pairs(F low, F high) { return vuzp2q_f32(low, high); }
