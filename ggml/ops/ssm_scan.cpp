// ssm_scan: a state space with one decay per head, token after token.
// Mamba-2: Dao and Gu 2024 (arXiv:2405.21060, section 7).
#include "ggml/ops/state_cases.h"

namespace nibble {
namespace {

void step(const OpArgs& a, int64_t t, int64_t h, std::vector<double>& s, bool counts) {
    const auto& p = a.params->as<SsmScanParams>();
    const int64_t K = p.k_dim, V = p.v_dim, values = p.n_heads * V, keys = int64_t{p.n_groups} * K;
    const int64_t group = h / (p.n_heads / p.n_groups);
    const float *const row = a.in[0].row(t), *const v = row + h * V, *const k = row + values + group * K,
                       *const q = row + values + keys + group * K;
    const auto of_head = [&](size_t operand, int64_t r) {
        return static_cast<double>(a.in[operand].row(r)[h]);
    };
    const double u = of_head(1, t) + of_head(3, 0), d = u > 30 ? u : std::log1p(std::exp(u)),
                 g = std::exp(of_head(2, 0) * d);
    for (int64_t j = 0; j < V; ++j) {
        const auto value = static_cast<double>(v[j]);
        double out = of_head(4, 0) * value;
        for (int64_t i = 0; i < K; ++i) {
            double& at = s[static_cast<size_t>(i * V + j)];
            // As the cache holds it, so that it does not matter where a step ends.
            at = static_cast<float>(g * at + static_cast<double>(k[i]) * d * value);
            out += static_cast<double>(q[i]) * at;
        }
        a.out[0].row(t)[h * V + j] = counts ? static_cast<float>(out) : 0.0f;
    }
}

void reference(const OpArgs& a) {
    const auto& p = a.params->as<SsmScanParams>();
    for_each_matrix(a, 6, a.in[5], p.n_heads, p.k_dim, step);
}

Cost cost(const OpArgs& a) {
    const auto& p = a.params->as<SsmScanParams>();
    const Tensor &x = a.in[0], &out = a.out[0], &page_table = a.in[8];
    const double matrix = static_cast<double>(p.n_heads) * p.k_dim * p.v_dim;
    const double states = static_cast<double>(page_table.rows) * matrix;
    return {4 * static_cast<double>(x.rows) * matrix, 4 * (static_cast<double>(x.rows * x.cols) + states),
            4 * (static_cast<double>(out.rows * out.cols) + states)};
}

// Time steps from tiny ones on, which nothing larger hides; or so large that their softplus is they
// themselves.
OpCase range_case(std::string_view which, float range, const StateLayout& l) {
    const SsmScanParams p{1, 6, 16, 16};
    return {cat("ssm_scan of ", which, " steps"), l.shape(), 1e-10, [=](Builder& b, CaseSink& s) {
                const Ref x = s.random_input(b, RowDim::tokens, 6 * 16 + 2 * 16);
                const Ref dt =
                    activate(b, s.random_input(b, RowDim::tokens, 6), {Activation::sigmoid, 0.1f, range});
                const Ref decay = s.random_weight(b, Type::f32, 1, 6, 0.05f);
                const Ref bias = s.random_weight(b, Type::f32, 1, 6, 0.1f);
                const Ref skip = s.random_weight(b, Type::f32, 1, 6, 1e-9f);
                const Ref state = s.random_cache(b, Type::f32, 3 * 6 * 16, 16);
                ssm_scan(b, x, dt, decay, bias, skip, state, l.inputs(b, s), p);
            }};
}

std::vector<OpCase> cases() {
    std::vector<OpCase> list;
    const StateLayout prompt{"prompt", {0, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {1}};
    list.push_back(range_case("tiny", -26, prompt));
    list.push_back(range_case("small", -16, prompt));
    list.push_back(range_case("large", 40, {"one row", {0, 1}, {0}, {0}}));
    for (const SsmScanParams& p : {SsmScanParams{1, 4, 128, 64}, SsmScanParams{2, 6, 24, 20},
                                   SsmScanParams{3, 3, 17, 33}, SsmScanParams{1, 2, 256, 128}})
        for (const StateLayout& l : state_layouts())
            list.push_back({cat("ssm_scan ", p.n_heads, " heads in ", p.n_groups, " groups of ", p.k_dim,
                                " and ", p.v_dim, ", ", l.label),
                            l.shape(), 1e-10, [=](Builder& b, CaseSink& s) {
                                const int64_t heads = p.n_heads, pages = 3;
                                const Ref x = s.random_input(
                                    b, RowDim::tokens, heads * p.v_dim + int64_t{2} * p.n_groups * p.k_dim);
                                const Ref dt = s.random_input(b, RowDim::tokens, heads);
                                const Ref decay = s.random_weight(b, Type::f32, 1, heads, 0.05f);
                                const Ref bias = s.random_weight(b, Type::f32, 1, heads);
                                const Ref skip = s.random_weight(b, Type::f32, 1, heads);
                                const Ref state =
                                    s.random_cache(b, Type::f32, pages * heads * p.k_dim, p.v_dim);
                                ssm_scan(b, x, dt, decay, bias, skip, state, l.inputs(b, s), p);
                            }});
    return list;
}

}  // namespace

const OpDef ssm_scan_op{static_cast<uint16_t>(Op::ssm_scan), "ssm_scan", reference, cost, nullptr, cases};

Ref ssm_scan(Builder& b, Ref x, Ref dt, Ref decay, Ref bias, Ref skip, Ref state, const AttentionBatch& batch,
             const SsmScanParams& p) {
    const auto cols = [&](Ref r) { return r && is_f32(b, r) ? b.value(r).cols : -1; };
    const int64_t heads = p.n_heads;
    const bool sizes = p.n_groups > 0 && heads > 0 && heads % p.n_groups == 0 && p.k_dim > 0 && p.v_dim > 0 &&
                       p.k_dim <= max_state_dim && p.v_dim <= max_state_dim;
    const bool ok = sizes && cols(x) == heads * p.v_dim + int64_t{2} * p.n_groups * p.k_dim &&
                    cols(dt) == heads && cols(decay) == heads && cols(bias) == heads && cols(skip) == heads &&
                    cols(state) == p.v_dim && is_state_batch(b, batch);
    if (!b.require(ok, cat("state space of ", heads, " heads in ", p.n_groups, " groups of ", p.k_dim,
                           " and ", p.v_dim, ", x has ", cols(x), " columns")))
        return {};
    return b.emit(ssm_scan_op,
                  {x, dt, decay, bias, skip, state, batch.seq_rows, batch.positions, batch.page_table}, p,
                  {{Type::f32, RowDim::tokens, 0, heads * p.v_dim}})[0];
}

}  // namespace nibble
