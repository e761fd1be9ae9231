// MoeProduct: what moe_matmul is made of apart from how its activations are arranged.
// An argument of kernels; moe_matmul.cu makes it, and moe_warpgroup.cu multiplies many rows by it.
#pragma once

#include "ggml/cuda/exec.h"
#include "ggml/cuda/product.h"
#include "ggml/cuda/tiles.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {

// The pairs of a step by expert. Pair p is row p / n_used and its (p % n_used)th expert.
struct Pairs {
    int32_t* list;    // expert after expert, rising within one
    int32_t* first;   // of each expert in `list`; one more at the end
    int32_t* active;  // experts that have pairs, rising
    int32_t* count;   // of those
};

// -1 for an expert that does not exist. Without routes a row uses all in their order.
__device__ inline int expert_of(const View& routes, const MoeMatmulParams& p, int row, int place) {
    const float e = routes ? routes.row(row)[place] : static_cast<float>(place);
    return e >= 0 && e < static_cast<float>(p.n_experts) ? static_cast<int>(e) : -1;
}

struct MoeProduct {
    View x, routes, out;
    const std::byte* weight[2];
    View bias[2];
    MoeMatmulParams p;
    int32_t rows;          // of an expert's matrix
    int32_t cols;          // of it
    int32_t per_row;       // inputs of a row of x: 1, or one per chosen expert
    int32_t first_weight;  // of this launch
    Pairs pairs;
    TileTable table;

    // The input of a pair, among those of all rows.
    __device__ int64_t input(int pair) const { return per_row > 1 ? pair : pair / p.n_used; }
    // Where a weight's results of a pair are, those of all rows of the expert's matrix.
    __device__ float* results(int which, int pair) const {
        return out.row(pair / p.n_used) + (int64_t{which} * p.n_used + pair % p.n_used) * rows;
    }
};

// Products of up to eight rows, each pair's by itself, with weights of any types as tiles; false, and nothing
// is done, where there is no kernel for them.
bool multiply_pairs(const Exec&, const OpArgs& moe_matmul);

// Products by warpgroups, where the experts have enough rows to fill them: the counterparts of product.h.
bool moe_warpgroups_apply(const Exec&, const MoeProduct&);
void prepare_moe_warpgroup(const Exec&, const MoeProduct&, std::span<std::byte> scratch);
void multiply_moe_warpgroup(const Exec&, const MoeProduct&, int32_t n_weights, Type weights,
                            std::span<std::byte> scratch);

}  // namespace nibble::cuda
