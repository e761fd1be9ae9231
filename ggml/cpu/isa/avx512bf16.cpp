// Kernels compiled for AVX-512 F, BW, VL, DQ, VNNI and BF16: attention and bf16 weights in pairs.
// Only what is included inside the target region is: no inline function of a header is compiled for it.
#if defined(__x86_64__)

#include "ggml/cpu/isa/headers.h"

#if defined(__clang__)
#pragma clang attribute push(                                                                          \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
#endif

namespace nibble::cpu::avx512bf16 {

// What is not this instruction set's own.
namespace borrowed {
constexpr const PackKernels& pack = avx512vnni::pack_kernels;
constexpr const MatmulKernels& matmul = avx512vnni::matmul_kernels;
constexpr const AttentionKernels& attention = avx512::attention_kernels;
}  // namespace borrowed

// The order matters: the vocabulary, then the kernels written in it.
// clang-format off
#include "ggml/cpu/simd/avx512.inl"
#include "ggml/cpu/simd/vnni512_dot.inl"
#include "ggml/cpu/simd/avx512bf16_pairs.inl"
#include "ggml/cpu/kernels/pairs_alone.inl"
// clang-format on

}  // namespace nibble::cpu::avx512bf16

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble::cpu {

extern const KernelTable avx512bf16_table;
constinit const KernelTable avx512bf16_table{.name = "avx512bf16",
                                             .needs = "AVX-512 F, BW, VL, DQ, VNNI and BF16",
                                             .available =
                                                 [](const Features& f) {
                                                     return f.avx2 && f.fma && f.f16c && f.avx512f &&
                                                            f.avx512bw && f.avx512vl && f.avx512dq &&
                                                            f.avx512vnni && f.avx512bf16;
                                                 },
                                             .rows = avx512::row_kernels,
                                             .pack = avx512bf16::borrowed::pack,
                                             .matmul = avx512bf16::matmul_kernels,
                                             .attention = avx512bf16::attention_kernels,
                                             .state = avx512::state_kernels};

}  // namespace nibble::cpu

#endif
