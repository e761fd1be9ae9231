// Blocks of bf16 weights in pairs, on vectors: streamed against few rows of activations, multiplied where
// they lie for more: a unit of the packed layout is such a pair of every row. All other types are left to the
// kernels of namespace borrowed.

struct PairRows : Pairs {
    static constexpr int parts = 1;
    static I part(I unit, int) { return unit; }
};

inline Activations<PairRows> pair_rows(const MatmulBlock& b) {
    return {reinterpret_cast<const Pairs::Number*>(b.xb), b.xb_stride / Pairs::size, (b.k + 1) / Pairs::size};
}

inline void multiply_pairs(const MatmulBlock& b) {
    const Activations<PairRows> a = pair_rows(b);
    const Pairs::Multiplier multiply;
    constexpr int64_t depth = Pairs::Multiplier::most_depth;
    float* const c = reinterpret_cast<float*>(b.scratch);
    for (int64_t n0 = 0; n0 < b.n; n0 += panel_columns) {
        const int64_t n = b.n - n0 < panel_columns ? b.n - n0 : panel_columns;
        const int64_t groups = (n + lanes - 1) / lanes;
        const std::byte* const w = packed_group(b, n0, b.scratch + tile_bytes, groups);
        for (int64_t k0 = 0; k0 < a.k; k0 += depth) {
            const int64_t k = a.k - k0 < depth ? a.k - k0 : depth;
            multiply.block(b.m, groups * lanes, a.x + k0, a.stride,
                           reinterpret_cast<const Pairs::Number*>(w) + k0 * lanes, Steps(lanes, a.k * lanes),
                           k, c, panel_columns, k0 == 0);
        }
        finish(b, n0, n, 0, b.m, c, panel_columns);
    }
}

inline Operand paired_operand(const TypeInfo& type, int64_t rows, int64_t k) {
    return type.type == Type::bf16 ? Operand::bf16 : borrowed::matmul.operand(type, rows, k);
}

inline size_t paired_scratch(const TypeInfo& type, int64_t k, bool packed) {
    if (type.type != Type::bf16) return borrowed::matmul.scratch(type, k, packed);
    return static_cast<size_t>(tile_bytes) + (packed ? 0 : tile_vecs * packed_group_bytes(type, k));
}

inline void paired_matmul(const MatmulBlock& b) {
    if (b.operand != Operand::bf16) return borrowed::matmul.block(b);
    if (b.m > streamed_rows) return multiply_pairs(b);
    stream_packed<PairRows>(b, pair_rows(b), b.scratch);
}

inline void borrowed_gated(const GatedBlock& b) { borrowed::matmul.gated(b); }

extern const MatmulKernels matmul_kernels;
constinit const MatmulKernels matmul_kernels{.operand = paired_operand,
                                             .int8_rows = stream_rows,
                                             .bf16_rows = 1,
                                             .round = round_row,
                                             .shape = {panel_columns, block_rows},
                                             .scratch = paired_scratch,
                                             .block = paired_matmul,
                                             .gated = borrowed_gated};
