// Kernels compiled for AVX-512 F, BW, VL and DQ.
// Only what is included inside the target region is: no inline function of a header is compiled for it.
#if defined(__x86_64__)

#include "ggml/cpu/isa/headers.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")
#endif

namespace nibble::cpu::avx512 {

// The order matters: the vocabulary, then the kernels written in it.
// clang-format off
#include "ggml/cpu/simd/avx512.inl"
#include "ggml/cpu/simd/avx512_settled.inl"
#include "ggml/cpu/simd/avx512_dot.inl"
#include "ggml/cpu/kernels/all.inl"
// clang-format on

}  // namespace nibble::cpu::avx512

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble::cpu {

extern const KernelTable avx512_table;
constinit const KernelTable avx512_table{.name = "avx512",
                                         .needs = "AVX-512 F, BW, VL and DQ",
                                         .available =
                                             [](const Features& f) {
                                                 return f.avx2 && f.fma && f.f16c && f.avx512f &&
                                                        f.avx512bw && f.avx512vl && f.avx512dq;
                                             },
                                         .rows = avx512::row_kernels,
                                         .pack = avx512::pack_kernels,
                                         .matmul = avx512::matmul_kernels,
                                         .attention = avx512::attention_kernels,
                                         .state = avx512::state_kernels};

}  // namespace nibble::cpu

#endif
