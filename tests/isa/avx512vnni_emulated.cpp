// The kernels of isa/avx512vnni.cpp and isa/avx512bf16.cpp with their instructions in software.
// See emulated.h.
#if defined(__x86_64__) && !defined(NIBBLE_SANITIZED)

#include <cmath>
#include <limits>

#include "ggml/cpu/isa/headers.h"
#include "ggml/types/float16.h"
#include "tests/isa/emulated.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace nibble::cpu::emulated {

#include "tests/isa/avx512_ops.inl"

namespace avx512vnni {

namespace borrowed {
constexpr const MatmulKernels& matmul = avx512::matmul_kernels;
}  // namespace borrowed

// clang-format off
#include "ggml/cpu/simd/avx512.inl"
#include "ggml/cpu/simd/vnni512_dot.inl"
#include "ggml/cpu/kernels/codes_alone.inl"
// clang-format on

}  // namespace avx512vnni

namespace avx512bf16 {

namespace borrowed {
constexpr const PackKernels& pack = avx512vnni::pack_kernels;
constexpr const MatmulKernels& matmul = avx512vnni::matmul_kernels;
constexpr const AttentionKernels& attention = avx512::attention_kernels;
}  // namespace borrowed

// clang-format off
#include "ggml/cpu/simd/avx512.inl"
#include "ggml/cpu/simd/vnni512_dot.inl"
#include "ggml/cpu/simd/avx512bf16_pairs.inl"
#include "ggml/cpu/kernels/pairs_alone.inl"
// clang-format on

}  // namespace avx512bf16
}  // namespace nibble::cpu::emulated

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
