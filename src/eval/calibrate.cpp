// ImportanceObserver: squares of the inputs of matmul, per column.
// The weights of one instruction share its input, and so its sums.
#include "src/eval/calibrate.h"

#include <cmath>

#include "src/eval/products.h"
#include "src/quant/feedback.h"

namespace nibble {

namespace {

void add_squares(const float* row, std::span<double> to) {
    for (size_t c = 0; c < to.size(); ++c) to[c] += static_cast<double>(row[c]) * static_cast<double>(row[c]);
}

}  // namespace

void ImportanceObserver::add_experts(const BoundInstr& b) {
    const auto width = static_cast<size_t>(b.in[2].cols);
    const auto n_experts = static_cast<size_t>(b.instr->params.as<MoeMatmulParams>().n_experts);
    Sums& s = sums_[b.instr];
    s.squares.resize(n_experts * width);
    s.expert_rows.resize(n_experts);
    each_routed_row(b, [&](size_t e, const float* row) {
        add_squares(row, std::span(s.squares).subspan(e * width, width));
        s.expert_rows[e] += 1;
        s.rows += 1;
    });
}

void ImportanceObserver::before(const BoundInstr& b) {
    if (weight_count(*b.instr) == 0) return;
    if (of_experts(*b.instr)) return add_experts(b);
    const Tensor& x = b.in[0];
    Sums& s = sums_[b.instr];
    s.squares.resize(static_cast<size_t>(x.cols));
    for (int64_t r = 0; r < x.rows; ++r) add_squares(x.row(r), s.squares);
    s.rows += static_cast<double>(x.rows);
}

Result<void> ImportanceObserver::check(const Program& program) const {
    for (const auto& [instr, s] : sums_)
        for (const double x : s.squares)
            if (!std::isfinite(x)) return no_finite_input(weight_of(program, *instr, 0).name);
    return {};
}

Result<void> ImportanceObserver::finish(const Program& program, Importance& out) const {
    for (const auto& [instr, s] : sums_) {
        for (size_t i = 0; i < weight_count(*instr); ++i) {
            const Value& weight = weight_of(program, *instr, i);
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
