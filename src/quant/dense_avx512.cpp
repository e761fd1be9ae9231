// Products of f32 matrices compiled for AVX-512: vectors of 16.
// Only what is included inside the target region is.
#if defined(__x86_64__)

#include <immintrin.h>

#include "src/quant/dense.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f")
#endif

namespace nibble::dense_avx512 {

constexpr int vector_floats = 16, tile_rows = 12;
using Vec = float __attribute__((vector_size(vector_floats * sizeof(float))));
inline Vec multiply_add(const Vec& a, const Vec& b, const Vec& c) { return _mm512_fmadd_ps(a, b, c); }

#include "src/quant/dense.inl"

}  // namespace nibble::dense_avx512

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble {

extern const DenseKernels dense_kernels_avx512;
constinit const DenseKernels dense_kernels_avx512{"avx512", dense_avx512::scratch_floats,
                                                  dense_avx512::add_packed_product<>};

}  // namespace nibble

#endif
