// The products with weights of a program, as calibration sees them: their matrices and their inputs.
// Activations are read as f32 in host memory.
#pragma once

#include <string>

#include "ggml/ops/ops.h"
#include "ggml/program/backend.h"

namespace nibble {

inline bool of_experts(const Instr& i) { return i.op == &moe_matmul_op; }

// How many matrices the instruction multiplies its input with; 0: it is no such product.
inline size_t weight_count(const Instr& i) {
    if (of_experts(i)) return static_cast<size_t>(i.params.as<MoeMatmulParams>().n_weights);
    return i.op == &matmul_op ? static_cast<size_t>(i.params.as<MatmulParams>().n_weights) : 0;
}
inline const Value& weight_of(const Program& program, const Instr& i, size_t n) {
    return program.values[static_cast<size_t>(i.in[2 + n].id)];
}

// Calls fn(expert, row) for what each expert is multiplied by.
template <class Fn>
void each_routed_row(const BoundInstr& b, const Fn& fn) {
    const auto& p = b.instr->params.as<MoeMatmulParams>();
    const Tensor &x = b.in[0], &routes = b.in[1];
    const int64_t cols = b.in[2].cols;
    for (int64_t r = 0; r < x.rows; ++r)
        for (int64_t j = 0; j < p.n_used; ++j) {
            const float route = routes ? routes.row(r)[j] : static_cast<float>(j);
            if (!(route >= 0 && route < static_cast<float>(p.n_experts))) continue;
            fn(static_cast<size_t>(route), x.row(r) + (x.cols == cols ? 0 : j * cols));
        }
}

}  // namespace nibble
