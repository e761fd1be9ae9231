// ImportanceObserver: squares of the inputs of matmul, per column.
// The weights of one instruction share its input, and so its sums.
#include "src/eval/calibrate.h"

namespace nibble {

namespace {

void add_squares(const float* row, std::span<double> to) {
    for (size_t c = 0; c < to.size(); ++c) to[c] += static_cast<double>(row[c]) * static_cast<double>(row[c]);
}

}  // namespace

void ImportanceObserver::add_experts(const BoundInstr& b) {
    const auto& p = b.instr->params.as<MoeMatmulParams>();
    const Tensor &x = b.in[0], &routes = b.in[1];
    const int64_t k = b.in[2].cols;
    Sums& s = sums_[b.instr];
    s.squares.resize(static_cast<size_t>(p.n_experts * k));
    s.expert_rows.resize(static_cast<size_t>(p.n_experts));
    for (int64_t r = 0; r < x.rows; ++r)
        for (int64_t j = 0; j < p.n_used; ++j) {
            const float route = routes ? routes.row(r)[j] : static_cast<float>(j);
            if (!(route >= 0 && route < static_cast<float>(p.n_experts))) continue;
            const auto e = static_cast<size_t>(route), width = static_cast<size_t>(k);
            add_squares(x.row(r) + (x.cols == k ? 0 : j * k), std::span(s.squares).subspan(e * width, width));
            s.expert_rows[e] += 1;
            s.rows += 1;
        }
}

void ImportanceObserver::before(const BoundInstr& b) {
    if (b.instr->op == &moe_matmul_op) return add_experts(b);
    if (b.instr->op != &matmul_op) return;
    const Tensor& x = b.in[0];
    Sums& s = sums_[b.instr];
    s.squares.resize(static_cast<size_t>(x.cols));
    for (int64_t r = 0; r < x.rows; ++r) add_squares(x.row(r), s.squares);
    s.rows += static_cast<double>(x.rows);
}

Result<void> ImportanceObserver::finish(const Program& program, Importance& out) const {
    for (const auto& [instr, s] : sums_) {
        const bool experts = instr->op == &moe_matmul_op;
        const auto n = static_cast<size_t>(experts ? instr->params.as<MoeMatmulParams>().n_weights
                                                   : instr->params.as<MatmulParams>().n_weights);
        for (size_t i = 0; i < n; ++i) {
            const Value& weight = program.values[static_cast<size_t>(instr->in[2 + i].id)];
            Importance::Entry& e = out.tensors[weight.name];
            e.sums.assign(s.squares.begin(), s.squares.end());
            e.count = static_cast<float>(s.rows);
            e.expert_counts.assign(s.expert_rows.begin(), s.expert_rows.end());
        }
    }
    if (out.tensors.empty()) return Error{ErrorCode::internal, "calibrate", "no matrix was seen", ""};
    return {};
}

}  // namespace nibble
