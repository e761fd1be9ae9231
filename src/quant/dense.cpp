// add_product: chooses the widest build that the machine runs, once.
// Every other build is a file dense_<isa>.cpp.
#include "src/quant/dense.h"

namespace nibble {
namespace {

constexpr int vector_floats = 4, tile_rows = 6;  // what every machine has
using Vec = float __attribute__((vector_size(vector_floats * sizeof(float))));
inline Vec multiply_add(const Vec& a, const Vec& b, const Vec& c) { return a * b + c; }

#include "src/quant/dense.inl"

constexpr DenseKernels baseline{"baseline", scratch_floats, add_packed_product<>};

}  // namespace

#if defined(__x86_64__)
extern const DenseKernels dense_kernels_avx2, dense_kernels_avx512, dense_kernels_avx512bf16;
#endif

std::vector<const DenseKernels*> usable_dense_kernels() {
    std::vector<const DenseKernels*> usable = {&baseline};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        usable.push_back(&dense_kernels_avx2);
    if (__builtin_cpu_supports("avx512f")) usable.push_back(&dense_kernels_avx512);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16"))
        usable.push_back(&dense_kernels_avx512bf16);
#endif
    return usable;
}

namespace {

const DenseKernels& fastest(bool may_round) {
    const DenseKernels* best = nullptr;
    for (const DenseKernels* kernels : usable_dense_kernels())
        if (may_round || !kernels->rounds) best = kernels;
    return *best;
}

void add(const DenseKernels& kernels, const Strided& a, const Strided& b, int64_t m, int64_t n, int64_t depth,
         float factor, float* c, int64_t stride) {
    std::vector<float> scratch(static_cast<size_t>(kernels.scratch(m)));
    kernels.add_product(a, b, m, n, depth, factor, c, stride, scratch.data());
}

}  // namespace

void add_product(const Strided& a, const Strided& b, int64_t m, int64_t n, int64_t depth, float factor,
                 float* c, int64_t stride) {
    static const DenseKernels& kernels = fastest(false);
    add(kernels, a, b, m, n, depth, factor, c, stride);
}

void add_rounded_product(const Strided& a, const Strided& b, int64_t m, int64_t n, int64_t depth,
                         float factor, float* c, int64_t stride) {
    static const DenseKernels& kernels = fastest(true);
    add(kernels, a, b, m, n, depth, factor, c, stride);
}

}  // namespace nibble
