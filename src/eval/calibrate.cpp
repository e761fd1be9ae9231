// ImportanceObserver: squares of the inputs of matmul, per column.
// The weights of one instruction share its input, and so its sums.
#include "src/eval/calibrate.h"

namespace nibble {

void ImportanceObserver::before(const BoundInstr& b) {
    if (b.instr->op != &matmul_op) return;
    const Tensor& x = b.in[0];
    Sums& s = sums_[b.instr];
    s.squares.resize(static_cast<size_t>(x.cols));
    for (int64_t r = 0; r < x.rows; ++r) {
        const float* row = x.row(r);
        for (int64_t c = 0; c < x.cols; ++c)
            s.squares[static_cast<size_t>(c)] += static_cast<double>(row[c]) * static_cast<double>(row[c]);
    }
    s.rows += static_cast<double>(x.rows);
}

Result<void> ImportanceObserver::finish(const Program& program, Importance& out) const {
    for (const auto& [instr, s] : sums_) {
        const auto n = static_cast<size_t>(instr->params.as<MatmulParams>().n_weights);
        for (size_t i = 0; i < n; ++i) {
            const Value& weight = program.values[static_cast<size_t>(instr->in[2 + i].id)];
            Importance::Entry& e = out.tensors[weight.name];
            e.sums.assign(s.squares.begin(), s.squares.end());
            e.count = static_cast<float>(s.rows);
        }
    }
    if (out.tensors.empty()) return Error{ErrorCode::internal, "calibrate", "no matrix was seen", ""};
    return {};
}

}  // namespace nibble
