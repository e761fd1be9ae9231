// splice_heads: columns of every head of one value, those of another behind them.
// Queries and keys of latent attention are put together so (DeepSeek-V2, arXiv:2405.04434, section 2.1).
#include <cstring>

#include "ggml/ops/common.h"

namespace nibble {
namespace {

void reference(const OpArgs& a) {
    const auto& p = a.params->as<SpliceParams>();
    const Tensor &x = a.in[0], &behind = a.in[1], &out = a.out[0];
    const int64_t x_cols = x.cols / p.n_heads, b_cols = behind ? behind.cols / p.n_heads : 0;
    for (int64_t t = 0; t < out.rows; ++t)
        for (int64_t h = 0; h < p.n_heads; ++h) {
            float* const to = out.row(t) + h * (p.a_count + b_cols);
            std::memcpy(to, x.row(t) + h * x_cols + p.a_first, static_cast<size_t>(p.a_count) * 4);
            if (b_cols > 0)
                std::memcpy(to + p.a_count, behind.row(t) + h * b_cols, static_cast<size_t>(b_cols) * 4);
        }
}

Cost cost(const OpArgs& a) {
    const double bytes = 4.0 * static_cast<double>(a.out[0].rows * a.out[0].cols);
    return {0, bytes, bytes};
}

std::vector<OpCase> cases() {
    std::vector<OpCase> list;
    struct Part {
        int32_t heads, cols, first, count, behind;
    };
    for (const int64_t rows : awkward_rows)
        for (const Part p : {Part{1, 5, 3, 2, 0}, Part{3, 24, 16, 8, 33}, Part{7, 9, 0, 9, 1}})
            list.push_back({cat("splice_heads ", rows, " rows, ", p.heads, " heads of ", p.count, " of ",
                                p.cols, " and ", p.behind),
                            token_shape(rows), 0, [=](Builder& b, CaseSink& s) {
                                const Ref x = s.random_input(b, RowDim::tokens, p.heads * p.cols);
                                splice_heads(b, x, {p.heads, p.first, p.count},
                                             p.behind > 0
                                                 ? s.random_input(b, RowDim::tokens, p.heads * p.behind)
                                                 : Ref{});
                            }});
    return list;
}

}  // namespace

const OpDef splice_heads_op{
    static_cast<uint16_t>(Op::splice_heads), "splice_heads", reference, cost, nullptr, cases};

Ref splice_heads(Builder& b, Ref x, SpliceParams p, Ref behind) {
    const Value &v = b.value(x), &w = b.value(behind);
    const bool whole = p.n_heads > 0 && v.cols % p.n_heads == 0 && w.cols % p.n_heads == 0;
    if (!b.require(x && is_f32(b, x) && whole && p.a_first >= 0 && p.a_count > 0 &&
                       p.a_count <= v.cols / p.n_heads - p.a_first &&
                       (!behind || (is_f32(b, behind) && w.dim == v.dim && w.rows == v.rows)),
                   cat("columns ", p.a_first, " and ", p.a_count, " further of ", p.n_heads, " heads in ",
                       v.cols, ", ", w.cols, " behind them")))
        return {};
    const int64_t cols = int64_t{p.n_heads} * p.a_count + w.cols;
    return b.emit(splice_heads_op, {x, behind}, p, {{Type::f32, v.dim, v.rows, cols}})[0];
}

}  // namespace nibble
