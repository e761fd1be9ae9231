// Products of f32 matrices compiled for AVX2 with FMA: vectors of 8.
// Only what is included inside the target region is.
#if defined(__x86_64__)

#include <immintrin.h>

#include "src/quant/dense.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace nibble::dense_avx2 {

constexpr int vector_floats = 8, tile_rows = 6;
using Vec = float __attribute__((vector_size(vector_floats * sizeof(float))));
inline Vec multiply_add(const Vec& a, const Vec& b, const Vec& c) { return _mm256_fmadd_ps(a, b, c); }

#include "src/quant/dense.inl"

}  // namespace nibble::dense_avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble {

extern const DenseKernels dense_kernels_avx2;
constinit const DenseKernels dense_kernels_avx2{"avx2", dense_avx2::scratch_floats,
                                                dense_avx2::add_packed_product<>};

}  // namespace nibble

#endif
