// Kernels compiled for AVX2, FMA, F16C and AVX-VNNI: processors without AVX-512 that have the dot product.
// Only what is included inside the target region is: no inline function of a header is compiled for it.
#if defined(__x86_64__)

#include "ggml/cpu/isa/headers.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")
#endif

namespace nibble::cpu::avxvnni {

// What is not this instruction set's own.
namespace borrowed {
constexpr const MatmulKernels& matmul = avx2::matmul_kernels;
}  // namespace borrowed

// The order matters: the vocabulary, then the kernels written in it.
// clang-format off
#include "ggml/cpu/simd/avx2.inl"
#include "ggml/cpu/simd/vnni256_dot.inl"
#include "ggml/cpu/kernels/codes_alone.inl"
// clang-format on

}  // namespace nibble::cpu::avxvnni

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble::cpu {

extern const KernelTable avxvnni_table;
constinit const KernelTable avxvnni_table{
    .name = "avxvnni",
    .needs = "AVX2, FMA, F16C and AVX-VNNI",
    .available = [](const Features& f) { return f.avx2 && f.fma && f.f16c && f.avx_vnni; },
    .rows = avx2::row_kernels,
    .pack = avxvnni::pack_kernels,
    .matmul = avxvnni::matmul_kernels,
    .attention = avx2::attention_kernels,
    .state = avx2::state_kernels};

}  // namespace nibble::cpu

#endif
