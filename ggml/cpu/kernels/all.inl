// All kernels, in order of dependence; included after the vocabulary of an instruction set that borrows none.
// Everything here is inside the namespace and the target region of the including file.
// clang-format off
#include "ggml/cpu/kernels/math.inl"
#include "ggml/cpu/kernels/prefetch.inl"
#include "ggml/cpu/kernels/row_types.inl"
#include "ggml/cpu/kernels/rows.inl"
#include "ggml/cpu/kernels/codes.inl"
#include "ggml/cpu/kernels/pack.inl"
#include "ggml/cpu/kernels/blocks.inl"
#include "ggml/cpu/kernels/code_streams.inl"
#include "ggml/cpu/kernels/tile.inl"
#include "ggml/cpu/kernels/matmul_real.inl"
#include "ggml/cpu/kernels/blocks_packed.inl"
#include "ggml/cpu/kernels/blocks_real.inl"
#include "ggml/cpu/kernels/matmul_int8.inl"
#include "ggml/cpu/kernels/blocks_codes.inl"
#include "ggml/cpu/kernels/matmul.inl"
#include "ggml/cpu/kernels/attention_tile.inl"
#include "ggml/cpu/kernels/attention.inl"
#include "ggml/cpu/kernels/attention_reals.inl"
#include "ggml/cpu/kernels/state.inl"
// clang-format on
