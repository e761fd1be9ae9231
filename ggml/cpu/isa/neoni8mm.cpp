// Kernels compiled for NEON with dot products and matrix products of bytes.
// Only what is included inside the target region is: no inline function of a header is compiled for it.
#if defined(__aarch64__)

#include "ggml/cpu/isa/headers.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod,i8mm"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
#endif

namespace nibble::cpu::neoni8mm {

// What is not this instruction set's own.
namespace borrowed {
constexpr const MatmulKernels& matmul = neon::matmul_kernels;
}  // namespace borrowed

// The order matters: the vocabulary, then the kernels written in it.
// clang-format off
#include "ggml/cpu/simd/neon.inl"
#include "ggml/cpu/simd/neondot_dot.inl"
#include "ggml/cpu/simd/neoni8mm_pair.inl"
#include "ggml/cpu/kernels/row_pairs.inl"
#include "ggml/cpu/kernels/codes_alone.inl"
// clang-format on

}  // namespace nibble::cpu::neoni8mm

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble::cpu {

extern const KernelTable neoni8mm_table;
constinit const KernelTable neoni8mm_table{
    .name = "neoni8mm",
    .needs = "NEON, dotprod and i8mm",
    .available = [](const Features& f) { return f.neon && f.arm_dotprod && f.arm_i8mm; },
    .rows = neon::row_kernels,
    .pack = neoni8mm::pack_kernels,
    .matmul = neoni8mm::matmul_kernels,
    .attention = neon::attention_kernels,
    .state = neon::state_kernels};

}  // namespace nibble::cpu

#endif
