// moe_route, moe_matmul, moe_sum: a mixture of experts, of which each row uses a few.
// A row's experts, their order and all sums depend on that row alone.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "ggml/ops/common.h"

namespace nibble {
namespace {

// ---- moe_route -------------------------------------------------------------------------------------------

std::vector<double> scores_of(std::span<const float> logits, Gating gating) {
    std::vector<double> scores;
    if (gating == Gating::sigmoid) {
        for (const float x : logits) scores.push_back(1 / (1 + std::exp(-static_cast<double>(x))));
        return scores;
    }
    const double top = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float x : logits) sum += scores.emplace_back(std::exp(x - top));
    for (double& s : scores) s /= sum;
    return scores;
}

// Largest first, the lower number among equals.
std::vector<size_t> falling(std::span<const double> values) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t i, size_t j) { return values[i] > values[j]; });
    return order;
}

// Takes the choice from all but the best groups.
void limit_groups(std::vector<double>& choice, const MoeRouteParams& p) {
    const auto groups = static_cast<size_t>(p.n_groups), size = choice.size() / groups;
    std::vector<double> group_scores;
    for (size_t g = 0; g < groups; ++g) {
        std::vector<double> members(&choice[g * size], &choice[g * size] + size);
        std::ranges::sort(members, std::greater());
        const bool two = p.gating == Gating::sigmoid && size > 1;
        group_scores.push_back(members[0] + (two ? members[1] : 0));
    }
    const auto order = falling(group_scores);
    for (size_t i = static_cast<size_t>(p.n_groups_used); i < groups; ++i)
        std::fill_n(&choice[order[i] * size], size, -std::numeric_limits<double>::infinity());
}

void route_reference(const OpArgs& a) {
    const auto& p = a.params->as<MoeRouteParams>();
    const Tensor &logits = a.in[0], &bias = a.in[1], &scales = a.in[2], &out = a.out[0];
    const auto n = static_cast<size_t>(logits.cols), used = static_cast<size_t>(p.n_used);
    for (int64_t t = 0; t < logits.rows; ++t) {
        const std::span<const float> row(logits.row(t), n);
        const std::vector<double> scores = scores_of(row, p.gating);
        std::vector<double> choice(row.begin(), row.end());  // falls as the scores do, and without rounding
        for (size_t i = 0; i < n && (bias || p.n_groups > 1); ++i)
            choice[i] = scores[i] + (bias ? static_cast<double>(bias.row(0)[i]) : 0);
        if (p.n_groups > 1) limit_groups(choice, p);
        const auto order = falling(choice);
        double sum = 0;
        for (size_t j = 0; j < used; ++j) sum += scores[order[j]];
        for (size_t j = 0; j < used; ++j) {
            out.row(t)[j] = static_cast<float>(order[j]);
            double weight = scores[order[j]] / (p.normalize ? sum : 1) * static_cast<double>(p.scale);
            if (scales) weight *= static_cast<double>(scales.row(0)[order[j]]);
            out.row(t)[used + j] = static_cast<float>(weight);
        }
    }
}

Cost route_cost(const OpArgs& a) {
    Cost c = operand_traffic(a);
    c.flops = static_cast<double>(a.in[0].rows * a.in[0].cols) * 4;
    return c;
}

OpCase route_case(int64_t rows, int64_t experts, int32_t used, bool normalize) {
    return {cat("moe_route ", rows, " rows, ", used, " of ", experts, normalize ? " normalized" : ""),
            token_shape(rows), 1e-12, [=](Builder& b, CaseSink& s) {
                moe_route(b, s.random_input(b, RowDim::tokens, experts), {used, normalize});
            }};
}

OpCase gated_route_case(int64_t rows, int64_t experts, MoeRouteParams p, bool bias, bool scales = false) {
    return {cat("moe_route ", rows, " rows, ", p.n_used, " of ", experts, ", ", p.n_groups_used, " of ",
                p.n_groups, " groups", p.gating == Gating::sigmoid ? " sigmoid" : "",
                p.normalize ? " normalized" : "", bias ? " +bias" : "", scales ? " +scales" : ""),
            token_shape(rows), 1e-12, [=](Builder& b, CaseSink& s) {
                const Ref logits = s.random_input(b, RowDim::tokens, experts);
                const auto row = [&](bool there) {
                    return there ? s.random_weight(b, Type::f32, 1, experts) : Ref{};
                };
                const Ref biases = row(bias);
                moe_route(b, logits, p, biases, row(scales));
            }};
}

std::vector<OpCase> route_cases() {
    std::vector<OpCase> list;
    for (const int64_t rows : awkward_rows) list.push_back(route_case(rows, 8, 2, true));
    for (const bool normalize : {false, true}) {
        list.push_back(route_case(5, 128, 8, normalize));
        list.push_back(route_case(3, 1, 1, normalize));
        list.push_back(route_case(4, 7, 7, normalize));
        for (const Gating gating : {Gating::softmax, Gating::sigmoid}) {
            list.push_back(gated_route_case(33, 96, {6, normalize, gating, 8, 3, 2.5f}, true));
            list.push_back(gated_route_case(5, 12, {4, normalize, gating, 3, 2, 1}, false));
            list.push_back(gated_route_case(4, 6, {2, normalize, gating, 6, 2, 1}, true));
            list.push_back(gated_route_case(7, 37, {5, normalize, gating, 1, 1, 0.5f}, true));
            list.push_back(gated_route_case(6, 40, {4, normalize, gating, 1, 1, 1}, false, true));
            list.push_back(gated_route_case(3, 37, {5, normalize, gating, 1, 1, 2}, true, true));
        }
    }
    return list;
}

// ---- moe_matmul ------------------------------------------------------------------------------------------

void matmul_reference(const OpArgs& a) {
    const auto& p = a.params->as<MoeMatmulParams>();
    const auto n_weights = static_cast<size_t>(p.n_weights);
    const Tensor &x = a.in[0], &routes = a.in[1], &out = a.out[0];
    for (size_t i = 0; i < n_weights; ++i) {
        const Tensor &w = a.in[2 + i], &bias = a.in[2 + n_weights + i];
        const int64_t n = w.rows / p.n_experts;
        for (int64_t t = 0; t < x.rows; ++t)
            for (int64_t j = 0; j < p.n_used; ++j) {
                const int64_t e = routes ? static_cast<int64_t>(routes.row(t)[j]) : j;
                const float* const from = x.row(t) + (x.cols == w.cols ? 0 : j * w.cols);
                float* const to = out.row(t) + (static_cast<int64_t>(i) * p.n_used + j) * n;
                for (int64_t o = 0; o < n; ++o) {
                    double sum = 0;
                    if (e >= 0 && e < p.n_experts) {
                        const auto row = decoded_row(w, e * n + o);
                        for (int64_t k = 0; k < w.cols; ++k)
                            sum += static_cast<double>(row[static_cast<size_t>(k)]) *
                                   static_cast<double>(from[k]);
                        if (bias) sum += bias.row(0)[e * n + o];
                    }
                    to[o] = static_cast<float>(sum);
                }
            }
    }
}

// Of the weights only the experts that can be in use at once count, each of them once.
Cost matmul_cost(const OpArgs& a) {
    const auto& p = a.params->as<MoeMatmulParams>();
    Cost c = operand_traffic(a);
    const auto pairs = static_cast<double>(a.in[0].rows * p.n_used);
    const double idle = 1 - std::min(1.0, pairs / p.n_experts);
    for (size_t i = 2; i < a.in.size(); ++i) {
        const Tensor& w = a.in[i];
        c.bytes_read -= idle * static_cast<double>(w.rows * w.stride);
        if (i < 2 + static_cast<size_t>(p.n_weights))
            c.flops += 2 * pairs * static_cast<double>(w.rows / p.n_experts * w.cols);
    }
    return c;
}

struct MatmulCase {
    Type type;
    int64_t rows, n, k;
    int32_t experts, used, weights;
    bool bias, per_slot;
    bool routed = true;
};

OpCase matmul_case(const MatmulCase& m) {
    const double tolerance = info(m.type).dot == DotClass::real ? 1e-9 : 1e-4;
    return {cat("moe_matmul ", info(m.type).name, " ", m.rows, " rows, ", m.used, " of ", m.experts, " of ",
                m.weights, "x", m.n, "x", m.k, m.bias ? " +bias" : "", m.per_slot ? " per slot" : "",
                m.routed ? "" : " of each"),
            token_shape(m.rows), tolerance, [=](Builder& b, CaseSink& s) {
                std::vector<Ref> weights, biases;
                for (int32_t i = 0; i < m.weights; ++i) {
                    weights.push_back(s.random_weight(b, m.type, m.experts * m.n, m.k));
                    if (m.bias) biases.push_back(s.random_weight(b, Type::f32, 1, m.experts * m.n));
                }
                const Ref logits = m.routed ? s.random_input(b, RowDim::tokens, m.experts) : Ref{};
                const Ref x = s.random_input(b, RowDim::tokens, m.per_slot ? m.k * m.used : m.k);
                const Ref routes = m.routed ? moe_route(b, logits, {m.used, true}) : Ref{};
                moe_matmul(b, weights, x, routes, {m.experts, m.used}, biases);
            }};
}

std::vector<OpCase> matmul_cases() {
    std::vector<OpCase> list;
    for (const int64_t rows : awkward_rows) {
        list.push_back(matmul_case({Type::q8_0, rows, 64, 96, 5, 2, 2, false, false}));
        list.push_back(matmul_case({Type::bf16, rows, 64, 40, 5, 2, 1, true, true}));
        list.push_back(matmul_case({Type::q8_0, rows, 64, 96, 5, 5, 1, false, true, false}));
        list.push_back(matmul_case({Type::f32, rows, 64, 40, 3, 3, 1, false, true, false}));
    }
    for (const TypeInfo& t : all_types()) {
        if (!t.decode || !t.encode) continue;
        const int64_t k = std::max<int64_t>(static_cast<int64_t>(t.block_len), 64);
        list.push_back(matmul_case({t.type, 1, 64, k, 4, 2, 2, true, false}));
        list.push_back(matmul_case({t.type, 19, 64, k, 3, 2, 1, false, true}));
        list.push_back(matmul_case({t.type, 1, 48, 512, 5, 3, 2, true, false}));  // columns in whole units
        list.push_back(matmul_case({t.type, 3, 32, 512, 6, 2, 1, false, true}));
    }
    list.push_back(matmul_case({Type::q4_0, 70, 128, 64, 3, 1, 2, false, false}));
    list.push_back(matmul_case({Type::q4_k, 8, 272, 768, 20, 6, 2, true, true}));
    list.push_back(matmul_case({Type::q8_0, 7, 48, 256, 4, 4, 1, false, true, false}));
    list.push_back(matmul_case({Type::q8_0, 70, 16, 32, 40, 4, 1, false, false}));
    return list;
}

// ---- moe_sum ---------------------------------------------------------------------------------------------

void sum_reference(const OpArgs& a) {
    const Tensor &y = a.in[0], &routes = a.in[1], &shared = a.in[2], &gate = a.in[3], &out = a.out[0];
    const int64_t used = routes.cols / 2;
    for (int64_t t = 0; t < y.rows; ++t)
        for (int64_t c = 0; c < out.cols; ++c) {
            double sum = 0;
            for (int64_t j = 0; j < used; ++j)
                sum += static_cast<double>(routes.row(t)[used + j]) *
                       static_cast<double>(y.row(t)[j * out.cols + c]);
            if (shared)
                sum += shared.row(t)[c] / (gate ? 1 + std::exp(-static_cast<double>(gate.row(t)[0])) : 1.0);
            out.row(t)[c] = static_cast<float>(sum);
        }
}

Cost sum_cost(const OpArgs& a) {
    Cost c = operand_traffic(a);
    c.flops = 2.0 * static_cast<double>(a.in[0].rows * a.in[0].cols);
    return c;
}

std::vector<OpCase> sum_cases() {
    std::vector<OpCase> list;
    for (const int64_t rows : awkward_rows)
        for (const int shared : {0, 1, 2})
            list.push_back(
                {cat("moe_sum ", rows, " rows", shared > 0 ? " +shared" : "", shared > 1 ? " +gate" : ""),
                 token_shape(rows), 1e-12, [=](Builder& b, CaseSink& s) {
                     const Ref routes = s.random_input(b, RowDim::tokens, 6);
                     moe_sum(b, s.random_input(b, RowDim::tokens, 3 * 37), routes,
                             shared > 0 ? s.random_input(b, RowDim::tokens, 37) : Ref{},
                             shared > 1 ? s.random_input(b, RowDim::tokens, 1) : Ref{});
                 }});
    return list;
}

}  // namespace

const OpDef moe_route_op{
    static_cast<uint16_t>(Op::moe_route), "moe_route", route_reference, route_cost, nullptr, route_cases};
const OpDef moe_matmul_op{static_cast<uint16_t>(Op::moe_matmul),
                          "moe_matmul",
                          matmul_reference,
                          matmul_cost,
                          nullptr,
                          matmul_cases};
const OpDef moe_sum_op{
    static_cast<uint16_t>(Op::moe_sum), "moe_sum", sum_reference, sum_cost, nullptr, sum_cases};

Ref moe_route(Builder& b, Ref logits, MoeRouteParams p, Ref bias, Ref scales) {
    const Value& v = b.value(logits);
    const auto fits = [&](Ref row) {
        return !row || (is_f32(b, row) && b.value(row).rows == 1 && b.value(row).cols == v.cols);
    };
    if (!b.require(logits && is_f32(b, logits) && p.n_used > 0 && p.n_used <= v.cols && v.cols <= max_experts,
                   cat("routing to ", p.n_used, " of ", v.cols, " experts")) ||
        !b.require(fits(bias) && fits(scales), cat("a bias or scales that are not of ", v.cols, " experts")))
        return {};
    const bool groups = p.n_groups > 0 && p.n_groups <= max_expert_groups && v.cols % p.n_groups == 0 &&
                        p.n_groups_used > 0 && p.n_groups_used <= p.n_groups &&
                        p.n_used <= v.cols / p.n_groups * p.n_groups_used;
    if (!b.require(groups, cat("routing to ", p.n_used, " of ", v.cols, " experts in ", p.n_groups_used,
                               " of ", p.n_groups, " groups")))
        return {};
    return b.emit(moe_route_op, {logits, bias, scales}, p,
                  {{Type::f32, v.dim, v.rows, 2 * int64_t{p.n_used}}})[0];
}

Ref moe_matmul(Builder& b, std::span<const Ref> weights, Ref x, Ref routes, MoeMatmulParams p,
               std::span<const Ref> biases) {
    const Value &v = b.value(x), &r = b.value(routes);
    p.n_weights = static_cast<int32_t>(weights.size());
    if (!b.require(
            !weights.empty() && weights.size() <= 2 && (biases.empty() || biases.size() == weights.size()),
            "moe_matmul takes one or two weights and as many biases") ||
        !b.require(p.n_experts > 0 && p.n_experts <= max_experts && p.n_used > 0 && p.n_used <= p.n_experts &&
                       (routes ? is_f32(b, routes) && r.cols == 2 * int64_t{p.n_used} && r.dim == v.dim
                               : p.n_used == p.n_experts),
                   cat("routes of ", r.cols, " columns for ", p.n_used, " of ", p.n_experts, " experts")))
        return {};
    std::vector<Ref> in{x, routes};
    const int64_t n = b.value(weights[0]).rows / p.n_experts;
    for (const Ref w : weights) {
        const Value& m = b.value(w);
        const bool fits = m.rows == n * p.n_experts && (m.cols == v.cols || m.cols * p.n_used == v.cols) &&
                          m.cols == b.value(weights[0]).cols && info(m.type).decode;
        if (!b.require(w && x && is_f32(b, x) && fits && n > 0,
                       cat("weight '", m.name, "' [", m.rows, " x ", m.cols, "] of ", p.n_experts,
                           " experts with ", v.cols, " columns")) ||
            !b.require(m.bound.layout == Layout::rows || n % packed_expert_rows == 0,
                       cat("weight '", m.name, "' of ", n, " rows per expert is packed")))
            return {};
        in.push_back(w);
    }
    for (size_t i = 0; i < weights.size(); ++i) {
        const Ref bias = biases.empty() ? Ref{} : biases[i];
        const Value& m = b.value(bias);
        if (!b.require(!bias || (is_f32(b, bias) && m.rows == 1 && m.cols == n * p.n_experts),
                       cat("bias '", m.name, "' [", m.rows, " x ", m.cols, "] for ", p.n_experts,
                           " experts of ", n, " rows")))
            return {};
        in.push_back(bias);
    }
    const int64_t cols = int64_t{p.n_weights} * p.n_used * n;
    return b.emit(moe_matmul_op, std::move(in), p, {{Type::f32, v.dim, v.rows, cols}})[0];
}

Ref moe_sum(Builder& b, Ref y, Ref routes, Ref shared, Ref gate) {
    const Value &v = b.value(y), &r = b.value(routes), &s = b.value(shared), &g = b.value(gate);
    const int64_t used = r.cols / 2;
    if (!b.require(y && routes && is_f32(b, y) && is_f32(b, routes) && used > 0 && v.cols % used == 0 &&
                       r.dim == v.dim,
                   cat("sum of ", v.cols, " columns over ", used, " experts")) ||
        !b.require((!shared || (is_f32(b, shared) && s.cols == v.cols / used && s.dim == v.dim)) &&
                       (!gate || (shared && is_f32(b, gate) && g.cols == 1 && g.dim == v.dim)),
                   cat("shared expert of ", s.cols, " columns and ", g.cols, " gates")))
        return {};
    return b.emit(moe_sum_op, {y, routes, shared, gate}, {}, {{Type::f32, v.dim, v.rows, v.cols / used}})[0];
}

}  // namespace nibble
