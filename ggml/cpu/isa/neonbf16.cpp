// Kernels compiled for NEON with products of bf16: attention and bf16 weights in pairs.
// Only what is included inside the target region is: no inline function of a header is compiled for it.
#if defined(__aarch64__)

#include "ggml/cpu/isa/headers.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod,i8mm,bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm+bf16")
#endif

namespace nibble::cpu::neonbf16 {

// What is not this instruction set's own.
namespace borrowed {
constexpr const PackKernels& pack = neoni8mm::pack_kernels;
constexpr const MatmulKernels& matmul = neoni8mm::matmul_kernels;
constexpr const AttentionKernels& attention = neon::attention_kernels;
}  // namespace borrowed

// The order matters: the vocabulary, then the kernels written in it.
// clang-format off
#include "ggml/cpu/simd/neon.inl"
#include "ggml/cpu/simd/neondot_dot.inl"
#include "ggml/cpu/simd/neoni8mm_pair.inl"
#include "ggml/cpu/simd/neonbf16_pairs.inl"
#include "ggml/cpu/kernels/row_pairs.inl"
#include "ggml/cpu/kernels/pairs_alone.inl"
// clang-format on

}  // namespace nibble::cpu::neonbf16

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble::cpu {

extern const KernelTable neonbf16_table;
constinit const KernelTable neonbf16_table{
    .name = "neonbf16",
    .needs = "NEON, dotprod, i8mm and bf16",
    .available = [](const Features& f) { return f.neon && f.arm_dotprod && f.arm_i8mm && f.arm_bf16; },
    .rows = neon::row_kernels,
    .pack = neonbf16::borrowed::pack,
    .matmul = neonbf16::matmul_kernels,
    .attention = neonbf16::attention_kernels,
    .state = neon::state_kernels};

}  // namespace nibble::cpu

#endif
