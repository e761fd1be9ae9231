// One block of a matmul: codes meet activations in int8, everything else those in f32.
// Real blocks are this instruction set's (blocks_real.inl) or another's (borrowed_reals.inl).

inline Operand operand_of(const TypeInfo& type, int64_t /*rows*/, int64_t /*k*/) {
    return has_int8_path(type) ? Operand::int8 : Operand::f32;
}

inline size_t matmul_scratch(const TypeInfo& type, int64_t k, bool packed) {
    return has_int8_path(type) ? code_scratch(type, k, packed) : real_scratch(type, k, packed);
}

inline void matmul_block(const MatmulBlock& b) { b.operand == Operand::int8 ? code_block(b) : real_block(b); }

extern const MatmulKernels matmul_kernels;
constinit const MatmulKernels matmul_kernels{.operand = operand_of,
                                             .int8_rows = stream_rows,
                                             .bf16_rows = 1,
                                             .round = nullptr,
                                             .shape = {panel_columns, block_rows},
                                             .scratch = matmul_scratch,
                                             .block = matmul_block,
                                             .gated = gated_codes};
