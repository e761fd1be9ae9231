// Products of matrices rounded to bf16 compiled for AVX512-BF16: two k in one instruction.
// Only what is included inside the target region is.
#if defined(__x86_64__)

#include <immintrin.h>

#include "ggml/types/float16.h"
#include "src/quant/dense.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bf16")
#endif

namespace nibble::dense_avx512bf16 {

constexpr int vector_floats = 16, tile_rows = 12;
using Vec = float __attribute__((vector_size(vector_floats * sizeof(float))));
using Pair = uint32_t;  // the first of two numbers in the lower half
using PairVec = Pair __attribute__((vector_size(vector_floats * sizeof(Pair))));
inline Vec multiply_add(const Vec& a, const Vec& b, const Vec& c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec multiply_add(const PairVec& a, const PairVec& b, const Vec& c) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

#include "src/quant/dense.inl"

struct Pairs {
    using Unit = Pair;
    using Units = PairVec;
    static constexpr int64_t size = 2;
    static Unit unit(const float* x, int64_t step, int64_t count, float factor) {
        const Pair second = count > 1 ? f32_to_bf16(factor * x[step]) : 0;
        return f32_to_bf16(factor * *x) | second << 16;
    }
};

}  // namespace nibble::dense_avx512bf16

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble {

extern const DenseKernels dense_kernels_avx512bf16;
constinit const DenseKernels dense_kernels_avx512bf16{
    "avx512bf16", dense_avx512bf16::scratch_floats,
    dense_avx512bf16::add_packed_product<dense_avx512bf16::Pairs>, true};

}  // namespace nibble

#endif
