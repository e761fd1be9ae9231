// Matmul of bf16 weights with activations rounded to bf16, two columns at a time: twice the rate of f32.
// A unit of the packed layout is such a pair of every row, so groups are multiplied as they lie. What
// vectors and tiles (AMX) share of it.

template <class P>
struct PairRows : P {
    static constexpr int parts = 1;
    static I part(I unit, int) { return unit; }
};

template <class P>
inline Activations<PairRows<P>> pair_rows(const MatmulBlock& b) {
    return {reinterpret_cast<const typename P::Number*>(b.xb), b.xb_stride / P::size, (b.k + 1) / P::size};
}

template <class P>
inline void multiply_pairs(const MatmulBlock& b) {
    const Activations<PairRows<P>> a = pair_rows<P>(b);
    constexpr int64_t depth = P::Multiplier::most_depth;
    typename P::Multiplier multiplier;
    float* const c = reinterpret_cast<float*>(b.scratch);
    for (int64_t n0 = 0; n0 < b.n; n0 += panel_columns) {
        const int64_t n = b.n - n0 < panel_columns ? b.n - n0 : panel_columns;
        const int64_t groups = (n + lanes - 1) / lanes;
        const std::byte* const w = packed_group(b, n0, b.scratch + tile_bytes, groups);
        for (int64_t k0 = 0; k0 < a.k; k0 += depth) {
            const int64_t k = a.k - k0 < depth ? a.k - k0 : depth;
            multiplier.block(b.m, groups * lanes, a.x + k0, a.stride,
                             reinterpret_cast<const typename P::Number*>(w) + k0 * lanes,
                             Steps(lanes, a.k * lanes), k, c, panel_columns, k0 == 0);
        }
        finish(b, n0, n, 0, b.m, c, panel_columns);
    }
}

inline Operand paired_operand(const TypeInfo& type, int64_t rows, int64_t k) {
    return type.type == Type::bf16 ? Operand::bf16 : borrowed::matmul.operand(type, rows, k);
}

inline void round_row(const float* x, int64_t n, int64_t h, uint16_t* out) {
    for (int64_t i = 0; i < n; i += bf16_step, out += h * bf16_step) {
        const int64_t count = n - i < bf16_step ? n - i : bf16_step;
        Pairs::narrow(x + i, count, 1, reinterpret_cast<Pairs::Number*>(out));
        std::memset(out + count, 0, static_cast<size_t>(bf16_step - count) * sizeof *out);
    }
}
