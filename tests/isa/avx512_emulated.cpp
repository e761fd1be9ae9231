// The kernels of isa/avx512.cpp with the instructions of AVX-512 in software.
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

namespace avx512 {

// The order matters: the vocabulary, then the kernels written in it.
// clang-format off
#include "ggml/cpu/simd/avx512.inl"
#include "ggml/cpu/simd/avx512_dot.inl"
#include "ggml/cpu/kernels/all.inl"
// clang-format on

}  // namespace avx512
}  // namespace nibble::cpu::emulated

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
