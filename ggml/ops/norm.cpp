// norm: RMS norm and layer norm over rows or groups of columns.
// RMSNorm: Zhang & Sennrich 2019 (arXiv:1910.07467); LayerNorm: Ba et al. 2016 (arXiv:1607.06450).
#include "ggml/ops/common.h"

namespace nibble {
namespace {

void reference(const OpArgs& a) {
    const auto& p = a.params->as<NormParams>();
    const Tensor &x = a.in[0], &w = a.in[1], &bias = a.in[2], &residual = a.in[3], &out = a.out[0];
    const int64_t group = p.group ? p.group : x.cols;
    for (int64_t r = 0; r < x.rows; ++r)
        for (int64_t g = 0; g < x.cols; g += group) {
            const int64_t first = p.by_column ? g : 0;
            double sum = 0, squares = 0;
            for (int64_t i = 0; i < group; ++i) sum += x.row(r)[g + i];
            const double mean = p.subtract_mean ? sum / static_cast<double>(group) : 0;
            for (int64_t i = 0; i < group; ++i) {
                const double d = x.row(r)[g + i] - mean;
                squares += d * d;
            }
            const double scale =
                1 / std::sqrt(squares / static_cast<double>(group) + static_cast<double>(p.eps));
            for (int64_t i = 0; i < group; ++i) {
                double y = (x.row(r)[g + i] - mean) * scale;
                if (w) y *= w.row(0)[first + i];
                if (bias) y += bias.row(0)[first + i];
                if (residual) y += residual.row(r)[g + i];
                out.row(r)[g + i] = static_cast<float>(y);
            }
        }
}

Cost cost(const OpArgs& a) {
    Cost c = operand_traffic(a);
    c.flops = 4.0 * static_cast<double>(a.out[0].rows * a.out[0].cols);
    return c;
}

std::vector<OpCase> cases() {
    struct Variant {
        int64_t cols;
        NormParams p;
        bool weight, bias, residual;
    };
    const Variant variants[] = {{64, {1e-5f, 0, false}, true, false, false},
                                {257, {1e-6f, 0, false}, true, false, false},
                                {1, {1e-5f, 0, false}, true, false, true},
                                {192, {1e-5f, 64, false}, true, false, false},
                                {100, {1e-5f, 0, true}, true, true, true},
                                {96, {1e-5f, 0, true}, false, false, false},
                                {144, {1e-5f, 36, false, true}, true, false, false},
                                {111, {1e-5f, 37, true, true}, true, true, true}};
    std::vector<OpCase> list;
    for (const Variant& v : variants)
        for (const int64_t rows : awkward_rows)
            list.push_back(
                {cat("norm ", rows, "x", v.cols), token_shape(rows), 1e-12, [v](Builder& b, CaseSink& s) {
                     const int64_t group = v.p.group && !v.p.by_column ? v.p.group : v.cols;
                     const auto vec = [&](bool on) {
                         return on ? s.random_weight(b, Type::f32, 1, group) : Ref{};
                     };
                     const Ref x = s.random_input(b, RowDim::tokens, v.cols, 3);
                     const Ref w = vec(v.weight), bias = vec(v.bias);
                     norm(b, x, w, v.p, bias, v.residual ? s.random_input(b, RowDim::tokens, v.cols) : Ref{});
                 }});
    return list;
}

}  // namespace

const OpDef norm_op{static_cast<uint16_t>(Op::norm), "norm", reference, cost, nullptr, cases};

Ref norm(Builder& b, Ref x, Ref weight, NormParams p, Ref bias, Ref residual) {
    const Value& v = b.value(x);
    const int64_t group = p.group ? p.group : v.cols;
    const auto vector_fits = [&](Ref r) {
        return !r ||
               (is_f32(b, r) && b.value(r).rows == 1 && b.value(r).cols == (p.by_column ? v.cols : group));
    };
    const bool ok = x && is_f32(b, x) && group > 0 && v.cols % group == 0 && vector_fits(weight) &&
                    vector_fits(bias) &&
                    (!residual || (is_f32(b, residual) && b.value(residual).cols == v.cols));
    if (!b.require(ok, cat("norm over groups of ", group, " of ", v.cols, " columns with a weight of ",
                           b.value(weight).cols)))
        return {};
    return b.emit(norm_op, {x, weight, bias, residual}, p, {{Type::f32, v.dim, v.rows, v.cols}})[0];
}

}  // namespace nibble
