// ProductArgs: what a matmul is made of apart from how its activations are arranged.
// An argument of kernels; matmul.cu makes it, and matmul_warpgroup.cu multiplies many rows by it.
#pragma once

#include <array>

#include "ggml/cuda/exec.h"
#include "ggml/cuda/tiles.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {

// One of the weights whose results lie side by side.
struct Segment {
    const std::byte* data;
    int64_t blocks;  // of 16 rows
    int32_t rows, first_col;
    View bias;
};

// The norm that x passes through on its way into the product.
struct RowNorm {
    bool on;
    float eps;
    View weight;
    View out;  // where the rows are wanted besides; may be absent
};

inline bool is_row_norm(const OpArgs& a) {
    const auto& p = a.params->as<NormParams>();
    return !p.subtract_mean && (p.group == 0 || p.group == a.in[0].cols) && !a.in[2] && !a.in[3];
}

// The gated unit whose results x is; `x` are the rows that it begins with.
struct RowUnit {
    bool on;
    GluParams params;
    View x;
};

struct ProductArgs {
    Segment segment[max_matmul_weights];
    int32_t segments;
    View x, residual, out;
    RowNorm norm;
    RowUnit unit;
    TileTable table;
};

// The gated unit that a product with two weights of one type ends in, if it is on.
struct UnitArgs {
    bool on;
    GluParams params;
    View out;
};
// Whether a product of many rows can end in it, or begin with it.
inline bool fits_unit(const GluParams& p) {
    return p.limit <= 0 && (p.act == Activation::silu || p.act == Activation::gelu_tanh);
}

// Products of rows that warpgroups_apply() to, in memory of warpgroup_scratch() bytes. prepare_warpgroup()
// converts x, for all weights that it is multiplied by.
size_t warpgroup_scratch(int64_t rows, int64_t cols);
void prepare_warpgroup(const Exec&, const ProductArgs&, std::span<std::byte> scratch);
void multiply_warpgroup(const Exec&, const ProductArgs&, Type weights, std::span<std::byte> scratch,
                        const UnitArgs& unit = {false, {}, Tensor{}});
// The same for weights of several types, one per segment, in one launch, and whether that is sooner done than
// one for each type (and there is a kernel for these).
bool mixes_warpgroup(const Exec&, const ProductArgs&, std::span<const Type> weights);
void multiply_mixed_warpgroup(const Exec&, const ProductArgs&, std::span<const Type> weights,
                              std::span<std::byte> scratch);

// The product of one row with weights of the given types, all as tiles, in one launch; false, and nothing is
// done, where there is no kernel for them. A pair of one type may end in a unit.
bool multiply_gemv(const Exec&, const ProductArgs&, std::span<const Type> types,
                   const UnitArgs& ends_in = {false, {}, Tensor{}});
// The same of some rows, where few_applies() to them, in memory for the rows of few_prepared_bytes(); they
// have the bits that each has alone.
bool few_applies(const Exec&, int64_t rows, int64_t cols);
size_t few_prepared_bytes(int64_t cols);
bool multiply_few(const Exec&, const ProductArgs&, std::span<const Type> types, std::span<std::byte> memory,
                  const UnitArgs& ends_in = {false, {}, Tensor{}});

// Products of rows that batch_applies() to, by weights of any types, in one launch; false, and nothing is
// done, where there is no kernel for them. The memory is as large as these say, more for more rows.
size_t batch_prepared_bytes(int64_t rows, int64_t cols);
size_t batch_partial_bytes(int64_t rows, int64_t cols, std::span<const Tensor> weights);
bool multiply_batch(const Exec&, const ProductArgs&, std::span<const Type> types,
                    std::span<std::byte> prepared, std::span<std::byte> partial);

}  // namespace nibble::cuda
