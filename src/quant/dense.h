// Products of f32 matrices for the statistics of quantization, by the widest vectors of the machine.
// Sums run over k in a fixed order: results depend on the instruction set, never on the threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nibble {

// A matrix or its transpose in memory: element (i, j) is data[i * row_step + j * col_step].
struct Strided {
    const float* data;
    int64_t row_step, col_step;
};

// c[i][j] += factor * sum over k of a(i, k) * b(k, j); a [m x depth], b [depth x n], c rows of `stride`.
// One thread; meant for pieces of about 256 x 256. c overlaps neither a nor b.
void add_product(const Strided& a, const Strided& b, int64_t m, int64_t n, int64_t depth, float factor,
                 float* c, int64_t stride);

// The same of a and b rounded to bf16, where the machine multiplies those faster.
void add_rounded_product(const Strided& a, const Strided& b, int64_t m, int64_t n, int64_t depth,
                         float factor, float* c, int64_t stride);

// What an instruction set provides: add_product with its scratch, which is `scratch(m)` floats.
struct DenseKernels {
    const char* name;
    int64_t (*scratch)(int64_t m);
    void (*add_product)(const Strided& a, const Strided& b, int64_t m, int64_t n, int64_t depth, float factor,
                        float* c, int64_t stride, float* scratch);
    bool rounds = false;
};

// Those that this machine runs, the fastest last, which is the one that add_rounded_product() is; the last
// that does not round is add_product().
std::vector<const DenseKernels*> usable_dense_kernels();

}  // namespace nibble
