// Pairs of bf16 numbers (Armv8.6-A bf16): BFDOT adds two products at a time, BFMMLA does so twice for each
// two of four rows. Both products of a pair are added to each other and then to the sum, each time rounded to
// odd.
struct PairOps {
    static F multiply_add(I x, I w, F sum) {
        asm("bfdot %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(x), "w"(w));
        return sum;
    }
    // Four columns of two rows of x; low and high are those of dot_pair(). Weights from two units of a group.
    using Weights = WeightPairs;
    static Weights weights(I first, I second) { return weight_pairs(first, second); }
    static void multiply_rows(F& low, F& high, const Weights& w, I x) {
        asm("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(low) : "w"(w.low), "w"(x));
        asm("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(high) : "w"(w.high), "w"(x));
    }
    static I load_rows(const void* first, const void* second) { return load_two(first, second); }
    // Lane by lane, rounded to nearest even. Numbers that are bf16 already need no rounding.
    template <bool exact = false>
    [[gnu::always_inline]] static I join(F first, F second) {
        if constexpr (exact) return vreinterpretq_s32_u16(vtrn2q_u16(words(first), words(second)));
        return vreinterpretq_s32_u16(vzip1q_u16(halves(first), halves(second)));
    }
    // In bf16, all lanes or the first n.
    static void store_halves(uint16_t* p, F x) { vst1_u16(p, vget_low_u16(halves(x))); }
    static void store_halves(uint16_t* p, F x, int64_t n) {
        if (n >= lanes) return store_halves(p, x);
        uint16_t all[lanes];
        store_halves(all, x);
        std::memcpy(p, all, static_cast<size_t>(n) * sizeof *p);
    }

  private:
    static uint16x8_t words(F x) { return vreinterpretq_u16_f32(x); }
    static uint16x8_t halves(F x) {  // the lower four
        uint16x8_t h;
        asm("bfcvtn %0.4h, %1.4s" : "=w"(h) : "w"(x));
        return h;
    }
};
