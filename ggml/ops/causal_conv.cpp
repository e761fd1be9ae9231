// causal_conv: a short convolution over each channel's inputs, with the last of them carried along.
// LFM2 (arXiv:2511.23404, section 2); before linear attention: Gated Delta Networks (arXiv:2412.06464).
#include <cstring>

#include "ggml/ops/state_cases.h"

namespace nibble {
namespace {

double activated(Activation act, double x) { return act == Activation::silu ? x / (1 + std::exp(-x)) : x; }

void reference(const OpArgs& a) {
    const auto& p = a.params->as<CausalConvParams>();
    const Tensor &x = a.in[0], &weight = a.in[1], &bias = a.in[2], &state = a.in[3], &out = a.out[0];
    const int64_t kept = p.n_taps - 1;
    for_each_state(a, 4, state.rows / kept, [&](const StateRun& run) {
        for (int64_t c = 0; c < x.cols; ++c) {
            std::vector<float> inputs(static_cast<size_t>(kept), 0);
            if (run.page >= 0 && !run.fresh)
                for (int64_t i = 0; i < kept; ++i)
                    inputs[static_cast<size_t>(i)] = state.row(run.page * kept + i)[c];
            const auto keep = [&](int64_t page) {
                for (int64_t i = 0; page >= 0 && i < kept; ++i)
                    state.row(page * kept + i)[c] = inputs[inputs.size() - static_cast<size_t>(kept - i)];
            };
            for (int64_t t = 0; t < run.count; ++t) {
                inputs.push_back(x.row(run.first + t)[c]);
                double sum = bias ? bias.row(0)[c] : 0;
                for (int64_t i = 0; i <= kept; ++i)
                    sum += static_cast<double>(weight.row(0)[c * p.n_taps + i]) *
                           static_cast<double>(inputs[inputs.size() - static_cast<size_t>(p.n_taps - i)]);
                out.row(run.first + t)[c] = run.page < 0 ? 0 : static_cast<float>(activated(p.act, sum));
                if (t + 1 == run.kept) keep(run.page);
            }
            if (run.page >= 0) keep(run.last);
        }
    });
}

Cost cost(const OpArgs& a) {
    const auto& p = a.params->as<CausalConvParams>();
    const Tensor &x = a.in[0], &page_table = a.in[6];
    const double rows = static_cast<double>(x.rows * x.cols),
                 states = static_cast<double>(page_table.rows * (p.n_taps - 1) * x.cols);
    return {2.0 * p.n_taps * rows, 4 * (rows + states + static_cast<double>(p.n_taps * x.cols)),
            4 * (rows + states)};
}

std::vector<OpCase> cases() {
    struct Variant {
        int32_t cols;
        CausalConvParams p;
        bool bias;
    };
    std::vector<OpCase> list;
    for (const Variant& v :
         {Variant{64, {4, Activation::silu}, false}, Variant{257, {3, Activation::none}, true},
          Variant{1, {2, Activation::silu}, true}, Variant{1030, {4, Activation::silu}, true},
          Variant{40, {8, Activation::none}, false}})
        for (const StateLayout& l : state_layouts())
            list.push_back({cat("causal_conv ", v.cols, " channels, ", v.p.n_taps, " taps, ", l.label),
                            l.shape(), 1e-11, [=](Builder& b, CaseSink& s) {
                                const int64_t n = v.cols, pages = 3;
                                const Ref x = s.random_input(b, RowDim::tokens, n);
                                const Ref weight = s.random_weight(b, Type::f32, 1, n * v.p.n_taps);
                                const Ref bias = v.bias ? s.random_weight(b, Type::f32, 1, n) : Ref{};
                                const Ref state = s.random_cache(b, Type::f32, (v.p.n_taps - 1) * pages, n);
                                causal_conv(b, x, weight, state, l.inputs(b, s), v.p, bias);
                            }});
    return list;
}

}  // namespace

const OpDef causal_conv_op{
    static_cast<uint16_t>(Op::causal_conv), "causal_conv", reference, cost, nullptr, cases};

Ref causal_conv(Builder& b, Ref x, Ref weight, Ref state, const AttentionBatch& batch, CausalConvParams p,
                Ref bias) {
    const int64_t cols = b.value(x).cols;
    const auto row_of = [&](Ref r, int64_t n) {
        return is_f32(b, r) && b.value(r).rows == 1 && b.value(r).cols == n;
    };
    const bool ok = x && is_f32(b, x) && p.n_taps > 1 && p.n_taps <= max_conv_taps &&
                    row_of(weight, cols * p.n_taps) && (!bias || row_of(bias, cols)) && is_f32(b, state) &&
                    b.value(state).cols == cols && is_state_batch(b, batch) &&
                    (p.act == Activation::none || p.act == Activation::silu);
    if (!b.require(ok, cat("convolution of ", cols, " channels with ", p.n_taps, " taps, ",
                           b.value(weight).cols, " weights")))
        return {};
    return b.emit(causal_conv_op, {x, weight, bias, state, batch.seq_rows, batch.positions, batch.page_table},
                  p, {{Type::f32, RowDim::tokens, 0, cols}})[0];
}

}  // namespace nibble
