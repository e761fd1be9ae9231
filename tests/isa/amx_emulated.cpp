// The kernels of isa/amx.cpp with its instructions in software; and the tables.
// See emulated.h.
#include "tests/isa/emulated.h"

#if defined(__x86_64__) && !defined(NIBBLE_SANITIZED)

#include <cmath>
#include <cstdlib>
#include <limits>

#include "ggml/cpu/isa/headers.h"
#include "ggml/types/float16.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace nibble::cpu::emulated {

#include "tests/isa/avx512_ops.inl"

namespace amx {

namespace borrowed {
constexpr const PackKernels& pack = avx512vnni::pack_kernels;
constexpr const MatmulKernels& matmul = avx512vnni::matmul_kernels;
constexpr const AttentionKernels& attention = avx512::attention_kernels;
}  // namespace borrowed

// clang-format off
#include "ggml/cpu/simd/avx512.inl"
#include "ggml/cpu/simd/vnni512_dot.inl"
#include "ggml/cpu/simd/avx512bf16_pairs.inl"
#include "tests/isa/amx_ops.inl"
#include "ggml/cpu/simd/amx.inl"
#include "ggml/cpu/kernels/tiles_alone.inl"
// clang-format on

}  // namespace amx
}  // namespace nibble::cpu::emulated

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble {
namespace cpu::emulated {

constexpr bool available(const Features& f) { return f.avx2 && f.fma && f.f16c; }

constexpr KernelTable tables[] = {
    {"avx512-emulated", "AVX2, FMA and F16C", available, avx512::row_kernels, avx512::pack_kernels,
     avx512::matmul_kernels, avx512::attention_kernels, avx512::state_kernels},
    {"avx512vnni-emulated", "AVX2, FMA and F16C", available, avx512::row_kernels, avx512vnni::pack_kernels,
     avx512vnni::matmul_kernels, avx512::attention_kernels, avx512::state_kernels},
    {"avx512bf16-emulated", "AVX2, FMA and F16C", available, avx512::row_kernels, avx512vnni::pack_kernels,
     avx512bf16::matmul_kernels, avx512bf16::attention_kernels, avx512::state_kernels},
    {"amx-emulated", "AVX2, FMA and F16C", available, avx512::row_kernels, avx512vnni::pack_kernels,
     amx::matmul_kernels, amx::attention_kernels, avx512::state_kernels}};

}  // namespace cpu::emulated

std::span<const cpu::KernelTable* const> emulated_tables() {
    using cpu::emulated::tables;
    static constexpr const cpu::KernelTable* list[] = {&tables[0], &tables[1], &tables[2], &tables[3]};
    return list;
}

}  // namespace nibble

#else

namespace nibble {
std::span<const cpu::KernelTable* const> emulated_tables() { return {}; }
}  // namespace nibble

#endif
