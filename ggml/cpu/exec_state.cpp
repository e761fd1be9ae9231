// causal_conv, delta_rule and ssm_scan: tasks are (sequence, channels) and (sequence, head, columns of its
// matrix). A sequence's rows follow each other, so none of these cuts can be seen in the result.
#include <cmath>
#include <cstring>

#include "ggml/base/checked.h"
#include "ggml/cpu/exec.h"
#include "ggml/ops/state_batch.h"

namespace nibble::cpu {
namespace {

void clear(const Tensor& out, const StateRun& run, int64_t column, int64_t n) {
    for (int64_t t = run.first; t < run.first + run.count; ++t)
        std::memset(out.row(t) + column, 0, static_cast<size_t>(n) * sizeof(float));
}

void copy_row(const float* from, float* to, int64_t n) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

// Where rows and states have what a head needs.
struct Heads {
    int64_t n_k_heads, n_v_heads, k_dim, v_dim;
    bool tiled;
    int64_t q, k, v;  // first columns
};

// Every head of every sequence. gates: of each head, then of each row, two numbers (StateBlock).
void run_heads(const Exec& exec, const Heads& s, const Tensor& x, const Tensor& state, const Tensor& out,
               const Tensor* batch, const float* gates, const float* skip,
               void (*kernel)(const StateBlock&)) {
    // A head's columns are cut as well where there are too few heads for the threads.
    constexpr int64_t fewest_columns = 32;
    const int64_t heads = s.n_v_heads, sequences = batch[0].rows, T = x.rows;
    const int64_t pieces =
        sequences * heads >= 4 * exec.pool->size() ? 1 : ceil_div<int64_t>(s.v_dim, fewest_columns);
    const int64_t columns = ceil_div<int64_t>(s.v_dim, pieces);
    const int64_t page_rows = heads * s.k_dim, n_pages = state.rows / page_rows;
    const int64_t rows_each = sequences > 0 ? ceil_div(T, sequences) : 0;
    exec.rows(
        sequences * heads * pieces, 4 * s.k_dim * columns * rows_each, [&](int64_t first, int64_t last, int) {
            for (int64_t i = first; i < last; ++i) {
                const int64_t h = i / pieces % heads, c = i % pieces * columns;
                const StateRun run = state_run(batch, i / pieces / heads, n_pages);
                const int64_t n = std::min(columns, s.v_dim - c);
                if (run.count == 0 || n <= 0) continue;
                if (run.page < 0) {
                    clear(out, run, h * s.v_dim + c, n);
                    continue;
                }
                const int64_t key = (s.tiled ? h % s.n_k_heads : h / (heads / s.n_k_heads)) * s.k_dim;
                const auto matrix = [&](int64_t page, int64_t r) {
                    return state.row(page * page_rows + h * s.k_dim + r) + c;
                };
                const auto rows = [&](int64_t t, int64_t n_rows, int64_t page, bool fresh) {
                    const float* const row = x.row(t);
                    kernel({s.k_dim, n, n_rows, row + s.q + key, row + s.k + key, row + s.v + h * s.v_dim + c,
                            x.stride / 4, gates + 2 * (h * T + t), skip ? skip[h] : 0, matrix(page, 0),
                            state.stride / 4, fresh, out.row(t) + h * s.v_dim + c, out.stride / 4});
                };
                walk_pages(run, rows, [&](int64_t from, int64_t to) {
                    for (int64_t r = 0; r < s.k_dim; ++r) copy_row(matrix(from, r), matrix(to, r), n);
                });
            }
        });
}

constexpr int64_t gate_cost = 100;  // three functions

float softplus(float u) { return u > 20 ? u : std::log1p(std::exp(u)); }

}  // namespace

void run_causal_conv(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const auto& p = a.params->as<CausalConvParams>();
    const Tensor &x = a.in[0], &weight = a.in[1], &bias = a.in[2], &state = a.in[3], &out = a.out[0];
    constexpr int64_t piece = 64;
    const int64_t kept = p.n_taps - 1, n_pages = state.rows / kept;
    const int64_t pieces = ceil_div(x.cols, piece), sequences = a.in[4].rows;
    const int64_t rows_each = sequences > 0 ? ceil_div(x.rows, sequences) : 0;
    exec.rows(sequences * pieces, 8 * piece * rows_each, [&](int64_t first, int64_t last, int) {
        for (int64_t i = first; i < last; ++i) {
            const StateRun run = state_run(&a.in[4], i / pieces, n_pages);
            if (run.count == 0) continue;
            const int64_t c = i % pieces * piece, n = std::min(piece, x.cols - c);
            if (run.page < 0) {
                clear(out, run, c, n);
                continue;
            }
            const auto inputs = [&](int64_t page, int64_t r) { return state.row(page * kept + r) + c; };
            const auto rows = [&](int64_t t, int64_t n_rows, int64_t page, bool fresh) {
                exec.kernels->state.causal_conv({&p, n, n_rows, x.row(t) + c, x.stride / 4,
                                                 weight.row(0) + c * p.n_taps,
                                                 bias ? bias.row(0) + c : nullptr, inputs(page, 0),
                                                 state.stride / 4, fresh, out.row(t) + c, out.stride / 4});
            };
            walk_pages(run, rows, [&](int64_t from, int64_t to) {
                for (int64_t r = 0; r < kept; ++r) copy_row(inputs(from, r), inputs(to, r), n);
            });
        }
    });
}

// Of each head, then of each row: g and sigmoid(b).
size_t delta_rule_scratch(const Exec&, const OpArgs& shapes) {
    return static_cast<size_t>(shapes.in[1].rows * shapes.in[1].cols) * sizeof(float);
}

void run_delta_rule(const Exec& exec, const OpArgs& a, std::span<std::byte> scratch) {
    const auto& p = a.params->as<DeltaRuleParams>();
    const Tensor &qkv = a.in[0], &raw = a.in[1], &decay = a.in[2], &bias = a.in[3], &state = a.in[4];
    const int64_t heads = p.n_v_heads, T = qkv.rows;
    auto* const gates = reinterpret_cast<float*>(scratch.data());
    exec.rows(T, gate_cost * heads, [&](int64_t first, int64_t last, int) {
        for (int64_t t = first; t < last; ++t)
            for (int64_t h = 0; h < heads; ++h) {
                const float* const b = raw.row(t) + p.gate_column(h);
                const float u = b[p.gates_in_group()] + bias.row(0)[h];
                gates[2 * (h * T + t)] = std::exp(decay.row(0)[h] * softplus(u));
                gates[2 * (h * T + t) + 1] = 1 / (1 + std::exp(-*b));
            }
    });
    const int64_t keys = int64_t{p.n_k_heads} * p.k_dim;
    run_heads(exec, {p.n_k_heads, heads, p.k_dim, p.v_dim, p.tiled, 0, keys, 2 * keys}, qkv, state, a.out[0],
              &a.in[5], gates, nullptr, exec.kernels->state.delta_rule);
}

// Of each head, then of each row: exp(decay d) and d.
size_t ssm_scan_scratch(const Exec&, const OpArgs& shapes) {
    return static_cast<size_t>(2 * shapes.in[1].rows * shapes.in[1].cols) * sizeof(float);
}

void run_ssm_scan(const Exec& exec, const OpArgs& a, std::span<std::byte> scratch) {
    const auto& p = a.params->as<SsmScanParams>();
    const Tensor &x = a.in[0], &dt = a.in[1], &decay = a.in[2], &bias = a.in[3];
    const int64_t heads = p.n_heads, T = x.rows;
    auto* const gates = reinterpret_cast<float*>(scratch.data());
    exec.rows(T, gate_cost * heads, [&](int64_t first, int64_t last, int) {
        for (int64_t t = first; t < last; ++t)
            for (int64_t h = 0; h < heads; ++h) {
                const float d = softplus(dt.row(t)[h] + bias.row(0)[h]);
                gates[2 * (h * T + t)] = std::exp(decay.row(0)[h] * d);
                gates[2 * (h * T + t) + 1] = d;
            }
    });
    const int64_t values = heads * p.v_dim, keys = int64_t{p.n_groups} * p.k_dim;
    run_heads(exec, {p.n_groups, heads, p.k_dim, p.v_dim, false, values + keys, values, 0}, x, a.in[5],
              a.out[0], &a.in[6], gates, a.in[4].row(0), exec.kernels->state.ssm_scan);
}

}  // namespace nibble::cpu
