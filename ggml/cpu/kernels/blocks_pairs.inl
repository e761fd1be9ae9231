// Blocks of bf16 weights in pairs, on vectors: streamed against few rows of activations, multiplied where
// they lie for more. All other types are multiplied by the kernels of namespace borrowed.

inline size_t paired_scratch(const TypeInfo& type, int64_t k, bool packed) {
    if (type.type != Type::bf16) return borrowed::matmul.scratch(type, k, packed);
    return static_cast<size_t>(tile_bytes) + (packed ? 0 : tile_vecs * packed_group_bytes(type, k));
}

inline void paired_matmul(const MatmulBlock& b) {
    if (b.operand != Operand::bf16) return borrowed::matmul.block(b);
    if (b.m > streamed_rows) return multiply_pairs<Pairs>(b);
    stream_packed<PairRows<Pairs>>(b, pair_rows<Pairs>(b), b.scratch);
}

extern const MatmulKernels matmul_kernels;
constinit const MatmulKernels matmul_kernels{.operand = paired_operand,
                                             .bf16_rows = 1,
                                             .round = round_row,
                                             .shape = {panel_columns, block_rows},
                                             .scratch = paired_scratch,
                                             .block = paired_matmul};
