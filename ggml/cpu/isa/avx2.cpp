// Kernels compiled for AVX2, FMA and F16C.
// Only what is included inside the target region is: no inline function of a header is compiled for it.
#if defined(__x86_64__)

#include "ggml/cpu/isa/headers.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace nibble::cpu::avx2 {

// The order matters: the vocabulary, then the kernels written in it.
// clang-format off
#include "ggml/cpu/simd/avx2.inl"
#include "ggml/cpu/simd/avx2_dot.inl"
#include "ggml/cpu/kernels/all.inl"
// clang-format on

}  // namespace nibble::cpu::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble::cpu {

extern const KernelTable avx2_table;
constinit const KernelTable avx2_table{
    .name = "avx2",
    .needs = "AVX2, FMA and F16C",
    .available = [](const Features& f) { return f.avx2 && f.fma && f.f16c; },
    .rows = avx2::row_kernels,
    .pack = avx2::pack_kernels,
    .matmul = avx2::matmul_kernels,
    .attention = avx2::attention_kernels,
    .state = avx2::state_kernels};

}  // namespace nibble::cpu

#endif
