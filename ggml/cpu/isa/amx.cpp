// Kernels compiled for AVX-512 VNNI, BF16 and AMX: tiles for bf16, attention and codes with many rows.
// Only what is included inside the target region is: no inline function of a header is compiled for it.
#if defined(__x86_64__)

#include "ggml/cpu/isa/headers.h"

#if defined(__clang__)
#pragma clang attribute push(                                                                                   \
    __attribute__((target(                                                                                      \
        "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,amx-tile,amx-int8,amx-bf16"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target( \
    "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,amx-tile,amx-int8,amx-bf16")
#endif

namespace nibble::cpu::amx {

// The order matters: the vocabulary, then the kernels written in it, then those that need tiles.
// clang-format off
#include "ggml/cpu/simd/avx512.inl"
#include "ggml/cpu/simd/vnni512_dot.inl"
#include "ggml/cpu/simd/avx512bf16_pairs.inl"
#include "ggml/cpu/simd/amx_ops.inl"
#include "ggml/cpu/simd/amx.inl"
#include "ggml/cpu/kernels/all.inl"
#include "ggml/cpu/kernels/attention_pairs.inl"
#include "ggml/cpu/kernels/matmul_pairs.inl"
#include "ggml/cpu/kernels/tiles_bf16.inl"
#include "ggml/cpu/kernels/tiles.inl"
// clang-format on

}  // namespace nibble::cpu::amx

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble::cpu {

extern const KernelTable amx_table;
constinit const KernelTable amx_table = amx::make_tiled_table(
    "amx", "AVX-512 F, BW, VL, DQ, VNNI, BF16 and AMX tiles with int8 and bf16", [](const Features& f) {
        return f.avx2 && f.fma && f.f16c && f.avx512f && f.avx512bw && f.avx512vl && f.avx512dq &&
               f.avx512vnni && f.avx512bf16 && f.amx_tile && f.amx_int8 && f.amx_bf16;
    });

}  // namespace nibble::cpu

#endif
