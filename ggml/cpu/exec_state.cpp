// causal_conv and delta_rule: tasks are (sequence, channels) and (sequence, head, columns of its matrix).
// A sequence's rows follow each other, so none of these cuts can be seen in the result.
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
            exec.kernels->causal_conv({&p, n, run.count, x.row(run.first) + c, x.stride / 4,
                                       weight.row(0) + c * p.n_taps, bias ? bias.row(0) + c : nullptr,
                                       state.row(run.page * kept) + c, state.stride / 4, run.fresh,
                                       out.row(run.first) + c, out.stride / 4});
        }
    });
}

// Of each head, then of each row: g and sigmoid(b).
size_t delta_rule_scratch(const Exec&, const OpArgs& shapes) {
    return static_cast<size_t>(shapes.in[1].rows * shapes.in[1].cols) * sizeof(float);
}

void run_delta_rule(const Exec& exec, const OpArgs& a, std::span<std::byte> scratch) {
    const auto& p = a.params->as<DeltaRuleParams>();
    const Tensor &qkv = a.in[0], &raw = a.in[1], &decay = a.in[2], &bias = a.in[3], &state = a.in[4],
                 &out = a.out[0];
    const int64_t heads = p.n_v_heads, sequences = a.in[5].rows, T = qkv.rows;
    auto* const gates = reinterpret_cast<float*>(scratch.data());
    constexpr int64_t gate_cost = 100;  // three functions
    exec.rows(T, gate_cost * heads, [&](int64_t first, int64_t last, int) {
        for (int64_t t = first; t < last; ++t)
            for (int64_t h = 0; h < heads; ++h) {
                const float b = raw.row(t)[h], u = raw.row(t)[heads + h] + bias.row(0)[h];
                const float softplus = u > 20 ? u : std::log1p(std::exp(u));
                gates[2 * (h * T + t)] = std::exp(decay.row(0)[h] * softplus);
                gates[2 * (h * T + t) + 1] = 1 / (1 + std::exp(-b));
            }
    });
    // A head's columns are cut as well where there are too few heads for the threads.
    constexpr int64_t fewest_columns = 32;
    const int64_t pieces =
        sequences * heads >= 4 * exec.pool->size() ? 1 : ceil_div<int64_t>(p.v_dim, fewest_columns);
    const int64_t columns = ceil_div<int64_t>(p.v_dim, pieces), keys = int64_t{p.n_k_heads} * p.k_dim;
    const int64_t page_rows = heads * p.k_dim, n_pages = state.rows / page_rows;
    const int64_t rows_each = sequences > 0 ? ceil_div(T, sequences) : 0;
    exec.rows(
        sequences * heads * pieces, 4 * p.k_dim * columns * rows_each, [&](int64_t first, int64_t last, int) {
            for (int64_t i = first; i < last; ++i) {
                const int64_t h = i / pieces % heads, c = i % pieces * columns;
                const StateRun run = state_run(&a.in[5], i / pieces / heads, n_pages);
                const int64_t n = std::min(columns, p.v_dim - c);
                if (run.count == 0 || n <= 0) continue;
                if (run.page < 0) {
                    clear(out, run, h * p.v_dim + c, n);
                    continue;
                }
                const int64_t key = (p.tiled ? h % p.n_k_heads : h / (heads / p.n_k_heads)) * p.k_dim;
                const float* const row = qkv.row(run.first);
                exec.kernels->delta_rule({&p, n, run.count, row + key, row + keys + key,
                                          row + 2 * keys + h * p.v_dim + c, qkv.stride / 4,
                                          gates + 2 * (h * T + run.first),
                                          state.row(run.page * page_rows + h * p.k_dim) + c, state.stride / 4,
                                          run.fresh, out.row(run.first) + h * p.v_dim + c, out.stride / 4});
            }
        });
}

}  // namespace nibble::cpu
