// The groups of kernels that more than one instruction set has: those of the plainest with such vectors, for
// the ones that only multiply bytes or bf16 in another way.
#pragma once

#include "ggml/cpu/kernel_table.h"

namespace nibble::cpu {

namespace avx2 {
extern const RowKernels row_kernels;
extern const MatmulKernels matmul_kernels;
extern const AttentionKernels attention_kernels;
extern const StateKernels state_kernels;
}  // namespace avx2

namespace avx512 {
extern const RowKernels row_kernels;
extern const MatmulKernels matmul_kernels;
extern const AttentionKernels attention_kernels;
extern const StateKernels state_kernels;
}  // namespace avx512

namespace avx512vnni {
extern const PackKernels pack_kernels;
extern const MatmulKernels matmul_kernels;
}  // namespace avx512vnni

namespace avx512bf16 {
extern const MatmulKernels matmul_kernels;
}  // namespace avx512bf16

namespace neoni8mm {
extern const PackKernels pack_kernels;
extern const MatmulKernels matmul_kernels;
}  // namespace neoni8mm

namespace neon {
extern const RowKernels row_kernels;
extern const MatmulKernels matmul_kernels;
extern const AttentionKernels attention_kernels;
extern const StateKernels state_kernels;
}  // namespace neon

}  // namespace nibble::cpu
