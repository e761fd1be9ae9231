// delta_rule: linear attention whose state is corrected by each token, with a decay.
// Gated Delta Networks: Yang et al. 2024 (arXiv:2412.06464, section 3), token after token.
#include "ggml/ops/state_cases.h"

namespace nibble {
namespace {

// A head's part of a row, scaled to length 1.
std::vector<double> unit(const float* x, int64_t n) {
    double squares = static_cast<double>(state_norm_eps);
    for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    std::vector<double> y;
    for (int64_t i = 0; i < n; ++i) y.push_back(x[i] / std::sqrt(squares));
    return y;
}

void step(const OpArgs& a, int64_t t, int64_t h, std::vector<double>& s, bool counts) {
    const auto& p = a.params->as<DeltaRuleParams>();
    const int64_t ratio = p.n_v_heads / p.n_k_heads, key_head = p.tiled ? h % p.n_k_heads : h / ratio;
    const int64_t K = p.k_dim, V = p.v_dim, keys = int64_t{p.n_k_heads} * K;
    const float* const row = a.in[0].row(t);
    const auto q = unit(row + key_head * K, K), k = unit(row + keys + key_head * K, K);
    const float* const v = row + 2 * keys + h * V;
    const float* const gates = a.in[1].row(t) + p.gate_column(h);
    const double beta = 1 / (1 + std::exp(-static_cast<double>(gates[0])));
    const double u = static_cast<double>(gates[p.gates_in_group()]) + static_cast<double>(a.in[3].row(0)[h]);
    const double g =
        std::exp(static_cast<double>(a.in[2].row(0)[h]) * (u > 30 ? u : std::log1p(std::exp(u))));
    const auto at = [&](int64_t i, int64_t j) -> double& { return s[static_cast<size_t>(i * V + j)]; };
    for (int64_t j = 0; j < V; ++j) {
        double had = 0, out = 0;
        for (int64_t i = 0; i < K; ++i) had += k[static_cast<size_t>(i)] * (at(i, j) *= g);
        const double delta = beta * (v[j] - had);
        for (int64_t i = 0; i < K; ++i) {
            // As the cache holds it, so that it does not matter where a step ends.
            at(i, j) = static_cast<float>(at(i, j) + k[static_cast<size_t>(i)] * delta);
            out += q[static_cast<size_t>(i)] * at(i, j);
        }
        a.out[0].row(t)[h * V + j] =
            counts ? static_cast<float>(out / std::sqrt(static_cast<double>(K))) : 0.0f;
    }
}

void reference(const OpArgs& a) {
    const auto& p = a.params->as<DeltaRuleParams>();
    for_each_matrix(a, 5, a.in[4], p.n_v_heads, p.k_dim, step);
}

Cost cost(const OpArgs& a) {
    const auto& p = a.params->as<DeltaRuleParams>();
    const Tensor &qkv = a.in[0], &out = a.out[0], &page_table = a.in[7];
    const double matrix = static_cast<double>(p.n_v_heads) * p.k_dim * p.v_dim;
    const double states = static_cast<double>(page_table.rows) * matrix;
    return {7 * static_cast<double>(qkv.rows) * matrix,
            4 * (static_cast<double>(qkv.rows * qkv.cols) + states),
            4 * (static_cast<double>(out.rows * out.cols) + states)};
}

std::vector<OpCase> cases() {
    std::vector<OpCase> list;
    for (const DeltaRuleParams& p :
         {DeltaRuleParams{2, 4, 128, 128, true}, DeltaRuleParams{2, 6, 24, 20, false},
          DeltaRuleParams{3, 3, 17, 33, false}, DeltaRuleParams{1, 2, 256, 64, true},
          DeltaRuleParams{2, 6, 24, 20, false, 3}})
        for (const StateLayout& l : state_layouts())
            list.push_back({cat("delta_rule ", p.n_k_heads, "/", p.n_v_heads, " heads of ", p.k_dim, " and ",
                                p.v_dim, p.gate_group > 0 ? ", gates in groups, " : ", ", l.label),
                            l.shape(), 1e-10, [=](Builder& b, CaseSink& s) {
                                const int64_t heads = p.n_v_heads, pages = 3;
                                const Ref qkv = s.random_input(
                                    b, RowDim::tokens, int64_t{2} * p.n_k_heads * p.k_dim + heads * p.v_dim);
                                const Ref gates = s.random_input(b, RowDim::tokens, 2 * heads);
                                const Ref decay = s.random_weight(b, Type::f32, 1, heads, 0.05f);
                                const Ref bias = s.random_weight(b, Type::f32, 1, heads);
                                const Ref state =
                                    s.random_cache(b, Type::f32, pages * heads * p.k_dim, p.v_dim);
                                delta_rule(b, qkv, gates, decay, bias, state, l.inputs(b, s), p);
                            }});
    return list;
}

}  // namespace

const OpDef delta_rule_op{
    static_cast<uint16_t>(Op::delta_rule), "delta_rule", reference, cost, nullptr, cases};

Ref delta_rule(Builder& b, Ref qkv, Ref gates, Ref decay, Ref bias, Ref state, const AttentionBatch& batch,
               const DeltaRuleParams& p) {
    const auto cols = [&](Ref r) { return is_f32(b, r) ? b.value(r).cols : -1; };
    const int64_t heads = p.n_v_heads;
    const bool sizes = p.n_k_heads > 0 && heads > 0 && heads % p.n_k_heads == 0 && p.k_dim > 0 &&
                       p.v_dim > 0 && p.k_dim <= max_state_dim && p.v_dim <= max_state_dim &&
                       p.gate_group >= 0 && heads % p.gates_in_group() == 0;
    const bool ok = sizes && qkv && cols(qkv) == int64_t{2} * p.n_k_heads * p.k_dim + heads * p.v_dim &&
                    cols(gates) == 2 * heads && cols(decay) == heads && cols(bias) == heads &&
                    cols(state) == p.v_dim && is_state_batch(b, batch);
    if (!b.require(ok, cat("delta rule of ", p.n_k_heads, " key and ", heads, " value heads of ", p.k_dim,
                           " and ", p.v_dim, ", q, k, v have ", cols(qkv), " columns")))
        return {};
    return b.emit(delta_rule_op,
                  {qkv, gates, decay, bias, state, batch.seq_rows, batch.positions, batch.page_table}, p,
                  {{Type::f32, RowDim::tokens, 0, heads * p.v_dim}})[0];
}

}  // namespace nibble
