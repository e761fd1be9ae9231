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

// The order matters: the vocabulary, then the kernels written in it.
// clang-format off
#include "ggml/cpu/simd/avx2.inl"
#include "ggml/cpu/simd/vnni256_dot.inl"
#include "ggml/cpu/kernels/all.inl"
// clang-format on

}  // namespace nibble::cpu::avxvnni

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble::cpu {

extern const KernelTable avxvnni_table;
constinit const KernelTable avxvnni_table =
    avxvnni::make_table("avxvnni", "AVX2, FMA, F16C and AVX-VNNI",
                        [](const Features& f) { return f.avx2 && f.fma && f.f16c && f.avx_vnni; });

}  // namespace nibble::cpu

#endif
