// The sum of a row's experts, as the end of the product that makes their outputs or by itself: the same bits.
// Contracts are in ggml/ops/ops.h.
#pragma once

#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {

struct SumArgs {
    View y, routes, shared, gate;  // the last two may be absent
    View residual;                 // may be absent; what is added to it is `scale` times the sum
    float scale = 1;
    View out;
};

// Column c of row t.
__device__ inline void sum_experts(const SumArgs& a, int64_t t, int c) {
    const int used = a.routes.cols / 2;
    float sum = 0;
    for (int j = 0; j < used; ++j) sum += a.routes.row(t)[used + j] * a.y.row(t)[j * a.out.cols + c];
    if (a.shared) {
        const float s = a.shared.row(t)[c];
        sum += a.gate ? s / (1 + expf(-a.gate.row(t)[0])) : s;
    }
    a.out.row(t)[c] = a.residual ? a.residual.row(t)[c] + a.scale * sum : sum;
}

inline SumArgs sum_args(const OpArgs& sum) {
    return {sum.in[0], sum.in[1], sum.in[2], sum.in[3], Tensor{}, 1, sum.out[0]};
}

// The sum that the instructions begin with, and the addition to a residual behind it if both can be one.
// Returns how many they are; 0: they begin with no sum. A value of the residual may be where its result goes;
// what the sum is made of may not, for it is read by other blocks, too.
inline size_t sum_at(std::span<const BoundInstr> instrs, SumArgs& args) {
    if (!is_at(instrs, 0, moe_sum_op)) return 0;
    const OpArgs sum = instrs[0].args();
    args = sum_args(sum);
    if (!is_at(instrs, 1, add_op) || instrs[0].instr->read_until != 1) return 1;
    const OpArgs add = instrs[1].args();
    const Tensor &residual = add.in[0], &out = add.out[0], &summed = sum.out[0];
    const bool whole = add.in[1].data == summed.data && add.in[1].rows == summed.rows &&
                       residual.data != summed.data && residual.rows == out.rows;
    const bool apart = std::ranges::none_of(sum.in, [&](const Tensor& t) { return overlap(t, out); });
    if (!whole || !apart || (overlap(residual, out) && residual.data != out.data)) return 1;
    args.residual = residual, args.scale = add.params->as<AddParams>().scale, args.out = out;
    return 2;
}

}  // namespace nibble::cuda
