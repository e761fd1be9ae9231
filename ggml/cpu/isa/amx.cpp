// Kernels compiled for AVX-512 VNNI, BF16 and AMX: tiles for bf16, attention and codes with many rows.
// Only what is included inside the target region is: no inline function of a header is compiled for it.
#if defined(__x86_64__)

#include "ggml/cpu/isa/headers.h"

#if defined(__clang__)
#pragma clang attribute push(                                                                                   \
    __attribute__((target(                                                                                      \
        "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,amx-tile,amx-bf16,amx-int8"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target( \
    "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,amx-tile,amx-bf16,amx-int8")
#endif

namespace nibble::cpu::amx {

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
#include "ggml/cpu/simd/amx_ops.inl"
#include "ggml/cpu/simd/amx.inl"
#include "ggml/cpu/kernels/tiles_alone.inl"
// clang-format on

}  // namespace nibble::cpu::amx

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble::cpu {

extern const KernelTable amx_table;
constinit const KernelTable amx_table{
    .name = "amx",
    .needs = "AVX-512 F, BW, VL, DQ, VNNI, BF16 and AMX tiles with bf16 and int8",
    .available =
        [](const Features& f) {
            return f.avx2 && f.fma && f.f16c && f.avx512f && f.avx512bw && f.avx512vl && f.avx512dq &&
                   f.avx512vnni && f.avx512bf16 && f.amx_tile && f.amx_bf16 && f.amx_int8;
        },
    .rows = avx512::row_kernels,
    .pack = amx::borrowed::pack,
    .matmul = amx::matmul_kernels,
    .attention = amx::attention_kernels,
    .state = avx512::state_kernels};

}  // namespace nibble::cpu

#endif
