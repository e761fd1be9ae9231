// Pairs of bf16 numbers for products and attention, by the PairOps of the vocabulary.
// See Reals in kernels/tile.inl for what each of these is for.
struct Pairs : PairOps {
    struct Multiplier;
    using Number = int32_t;  // the first of two numbers in the lower half
    using Vector = I;
    static constexpr int size = 2;
    static constexpr int64_t depth = 1;
    static I read(const int32_t* p) { return load_i(p); }
    static void write(int32_t* p, I x) { store_i(p, x); }
    static I broadcast(const int32_t* x) {  // which may have been written as numbers of 16 bits
        int32_t pair;
        std::memcpy(&pair, x, sizeof pair);
        return set1_i(pair);
    }
    static void narrow(const float* x, int64_t n, float scale, int32_t* out) {
        for (int64_t i = 0; i < n; i += lanes) {
            const int64_t count = n - i < lanes ? n - i : lanes;
            store_halves(reinterpret_cast<uint16_t*>(out) + i, load_n(x + i, count) * set1(scale), count);
        }
    }
    static void store_weights(float* row, int64_t j, F e) {
        store_halves(reinterpret_cast<uint16_t*>(row) + j, e);
    }
    template <class Row, class Fn>
    [[gnu::always_inline]] static I gather(Fn fn) {
        return join<Row::bf16>(fn(0), fn(1));
    }
    template <class Row, int V>
    [[gnu::always_inline]] static I value(const std::byte* rows, int64_t stride, int64_t n, int64_t i,
                                          int v) {
        const F second = n > 1 ? Row::template value<V>(rows + stride, i, v) : zero();
        return join<Row::bf16>(Row::template value<V>(rows, i, v), second);
    }
};
