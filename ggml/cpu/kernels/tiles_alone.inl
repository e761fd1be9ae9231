// The kernels of tiles, in order of dependence; included after a vocabulary with pairs of bf16 and tiles
// (AMX), for an instruction set that borrows the others. Everything here is inside the namespace and the
// target region of the including file.
// clang-format off
#include "ggml/cpu/kernels/math.inl"
#include "ggml/cpu/kernels/prefetch.inl"
#include "ggml/cpu/kernels/row_types.inl"
#include "ggml/cpu/kernels/codes.inl"
#include "ggml/cpu/kernels/borrowed_pack.inl"
#include "ggml/cpu/kernels/blocks.inl"
#include "ggml/cpu/kernels/code_streams.inl"
#include "ggml/cpu/kernels/tile.inl"
#include "ggml/cpu/kernels/pairs.inl"
#include "ggml/cpu/kernels/matmul_real.inl"
#include "ggml/cpu/kernels/matmul_pairs.inl"
#include "ggml/cpu/kernels/tiles_bf16.inl"
#include "ggml/cpu/kernels/tile_results.inl"
#include "ggml/cpu/kernels/tile_codes.inl"
#include "ggml/cpu/kernels/tiles_in_registers.inl"
#include "ggml/cpu/kernels/tiles_int8.inl"
#include "ggml/cpu/kernels/tiles.inl"
#include "ggml/cpu/kernels/attention_tile.inl"
#include "ggml/cpu/kernels/attention_softmax.inl"
#include "ggml/cpu/kernels/attention_few.inl"
#include "ggml/cpu/kernels/attention.inl"
#include "ggml/cpu/kernels/attention_pairs.inl"
// clang-format on

constexpr AttentionKernels attention_kernels = paired_attention_kernels<TilePairs>;
