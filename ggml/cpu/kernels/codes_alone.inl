// The kernels that multiply bytes, for an instruction set that borrows the others; in order of dependence.
// Everything here is inside the namespace and the target region of the including file.
// clang-format off
#include "ggml/cpu/kernels/prefetch.inl"
#include "ggml/cpu/kernels/codes.inl"
#include "ggml/cpu/kernels/pack.inl"
#include "ggml/cpu/kernels/blocks.inl"
#include "ggml/cpu/kernels/code_streams.inl"
#include "ggml/cpu/kernels/borrowed_reals.inl"
#include "ggml/cpu/kernels/matmul_int8.inl"
#include "ggml/cpu/kernels/blocks_codes.inl"
#include "ggml/cpu/kernels/matmul.inl"
// clang-format on
