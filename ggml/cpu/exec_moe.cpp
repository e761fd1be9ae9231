// moe_matmul: pairs of row and chosen expert, sorted by expert, go through the matmul kernels expert by
// expert, so that a batch reads each expert's weights once and a single row only those it uses.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "ggml/cpu/exec.h"
#include "ggml/cpu/operands.h"

namespace nibble::cpu {
namespace {

constexpr int64_t most_columns = 512;  // of a block, so that its results stay in the cache

// Operands and the memory of one instruction; `max_pairs` is rows * n_used.
struct Work {
    const Exec& exec;
    const OpArgs& a;
    MoeMatmulParams p;
    int64_t k, n, max_pairs;
    Operands operands;
    // From the start of the scratch.
    int64_t first_at, pairs_at, tasks_at, operands_at, real_at, workers_at, kernel_bytes, per_worker, bytes;
    std::byte* scratch = nullptr;

    Work(const Exec& e, const OpArgs& args)
        : exec(e),
          a(args),
          p(args.params->as<MoeMatmulParams>()),
          k(weight(0).cols),
          n(weight(0).rows / p.n_experts),
          max_pairs(a.in[0].rows * p.n_used),
          operands(e, a.in.subspan(2, static_cast<size_t>(p.n_weights)), max_pairs, together(), k) {
        int64_t kernel = 0;
        for (int32_t i = 0; i < p.n_weights; ++i) {
            const Tensor& w = weight(i);
            kernel = std::max(kernel, static_cast<int64_t>(exec.kernels->matmul.scratch(
                                          info(w.type), w.cols, w.layout == Layout::packed)));
        }
        const auto after = [](int64_t at, int64_t size) { return round_up(at + size, cache_line); };
        first_at = 0;
        pairs_at = after(first_at, (int64_t{p.n_experts} + 1) * 8);
        tasks_at = after(pairs_at, max_pairs * 4);
        operands_at = after(tasks_at, (int64_t{p.n_experts} + 1) * 8);
        real_at = after(operands_at, operands.bytes());
        workers_at = after(real_at, operands.f32() ? max_pairs * k * 4 : 0);
        kernel_bytes = round_up(kernel, cache_line);
        per_worker = kernel_bytes + round_up(tile_floats() * 4, cache_line);
        bytes = workers_at + per_worker * exec.pool->size();
    }

    // Rows that an expert has; or all of them, where so many are better off with an operand of many rows.
    int64_t together() const {
        const int64_t rows = a.in[0].rows, each = max_pairs / p.n_experts;
        return rows > few_rows && each >= few_rows / 2 ? rows : each;
    }
    const Tensor& weight(int64_t i) const { return a.in[2 + static_cast<size_t>(i)]; }
    const Tensor& bias(int64_t i) const { return a.in[2 + static_cast<size_t>(p.n_weights + i)]; }
    int64_t column_limit() const { return std::max(exec.kernels->matmul.shape.column_step, most_columns); }
    int64_t row_limit() const { return std::min(exec.kernels->matmul.shape.max_rows, max_rows()); }
    int64_t max_rows() const {
        return round_up(std::max<int64_t>(a.in[0].rows, 1), Operands::row_step(*exec.kernels));
    }
    int64_t tile_floats() const { return row_limit() * column_limit(); }

    int64_t* first() const { return reinterpret_cast<int64_t*>(scratch + first_at); }  // pair, per expert
    int32_t* pairs() const { return reinterpret_cast<int32_t*>(scratch + pairs_at); }  // row * n_used + slot
    int64_t* tasks() const { return reinterpret_cast<int64_t*>(scratch + tasks_at); }  // first, per expert
    float* gathered() const { return reinterpret_cast<float*>(scratch + real_at); }

    // The expert of a pair, -1 when there is none of this number.
    int64_t expert(int64_t pair) const {
        if (!a.in[1]) return pair % p.n_used;
        const float e = a.in[1].row(pair / p.n_used)[pair % p.n_used];
        return e >= 0 && e < static_cast<float>(p.n_experts) ? static_cast<int64_t>(e) : -1;
    }
    const float* input(int64_t pair) const {
        const Tensor& x = a.in[0];
        return x.row(pair / p.n_used) + (x.cols == k ? 0 : pair % p.n_used * k);
    }
    float* output(int64_t pair, int64_t i) const {
        return a.out[0].row(pair / p.n_used) + (i * p.n_used + pair % p.n_used) * n;
    }
};

// Counting sort: within an expert the pairs keep their order. Returns how many there are.
int64_t sort_pairs(const Work& w) {
    int64_t* const first = w.first();
    std::fill_n(first, w.p.n_experts + 1, 0);
    for (int64_t i = 0; i < w.max_pairs; ++i) {
        const int64_t e = w.expert(i);
        if (e >= 0) ++first[e + 1];
        for (int64_t m = 0; e < 0 && m < w.p.n_weights; ++m) std::fill_n(w.output(i, m), w.n, 0.0f);
    }
    for (int64_t e = 0; e < w.p.n_experts; ++e) first[e + 1] += first[e];
    const int64_t n = first[w.p.n_experts];
    for (int64_t i = 0; i < w.max_pairs; ++i)
        if (const int64_t e = w.expert(i); e >= 0) w.pairs()[first[e]++] = static_cast<int32_t>(i);
    for (int64_t e = w.p.n_experts; e > 0; --e) first[e] = first[e - 1];
    first[0] = 0;
    return n;
}

// Brings the inputs into the order of the pairs, as the kernels want them: an expert's rows are a matrix.
void prepare(const Work& w, int64_t n_pairs) {
    w.exec.rows(n_pairs, 4 * w.k, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
            const float* const x = w.input(w.pairs()[i]);
            if (w.operands.f32()) std::memcpy(w.gathered() + i * w.k, x, static_cast<size_t>(w.k) * 4);
            const int64_t e = w.expert(w.pairs()[i]);
            w.operands.write(w.first()[e], w.first()[e + 1], i, 0, w.k, x);
        }
    });
}

// One block of one expert's product: `rows` pairs from `pair`, `columns` outputs from n0 of weight i.
struct Block {
    int64_t i, expert, pair, rows, n0, columns;
};

void run_block(const Work& w, const Block& k, int worker) {
    const Tensor &weight = w.weight(k.i), &bias = w.bias(k.i);
    std::byte* const memory = w.scratch + w.workers_at + worker * w.per_worker;
    auto* const tile = reinterpret_cast<float*>(memory + w.kernel_bytes);
    MatmulBlock b;
    b.type = &info(weight.type);
    b.w = weight.row<std::byte>(k.expert * w.n + k.n0);
    b.w_stride = weight.stride;
    b.packed = weight.layout == Layout::packed;
    b.streaming = w.exec.streaming;
    b.n = k.columns;
    b.k = w.k;
    b.m = k.rows;
    if (w.operands.f32()) b.x = w.gathered() + k.pair * w.k;
    b.x_stride = w.k;
    w.operands.give(b, k.pair);
    b.bias = bias ? bias.row(0) + k.expert * w.n + k.n0 : nullptr;
    b.out = tile;
    b.out_stride = w.column_limit();
    b.scratch = memory;
    w.exec.kernels->matmul.block(b);
    for (int64_t r = 0; r < k.rows; ++r)
        std::memcpy(w.output(w.pairs()[k.pair + r], k.i) + k.n0, tile + r * b.out_stride,
                    static_cast<size_t>(k.columns) * 4);
}

}  // namespace

void run_moe_matmul(const Exec& exec, const OpArgs& a, std::span<std::byte> scratch) {
    Work w(exec, a);
    w.scratch = scratch.data();
    w.operands.place(w.scratch + w.operands_at);
    if (w.max_pairs == 0) return;
    const int64_t n_pairs = sort_pairs(w);
    prepare(w, n_pairs);

    // Columns in as large pieces as leave every thread some; an expert's rows in pieces of the kernel's.
    const int64_t step = exec.kernels->matmul.shape.column_step, rows = w.row_limit();
    const int64_t active = std::min<int64_t>(n_pairs, w.p.n_experts);
    const int64_t wanted = active * w.n * w.p.n_weights / (8 * exec.pool->size()) / step * step;
    const int64_t columns = std::clamp(wanted, step, w.column_limit() / step * step);
    const int64_t column_blocks = ceil_div(w.n, columns);
    int64_t* const tasks = w.tasks();
    tasks[0] = 0;
    for (int64_t e = 0; e < w.p.n_experts; ++e)
        tasks[e + 1] = tasks[e] + ceil_div(w.first()[e + 1] - w.first()[e], rows) * column_blocks;
    const int64_t per_weight = tasks[w.p.n_experts];
    const auto run = [&](int64_t task, int worker) {
        const int64_t i = task / per_weight, t = task % per_weight;
        const int64_t e = std::upper_bound(tasks, tasks + w.p.n_experts + 1, t) - tasks - 1;
        const int64_t row_blocks = (tasks[e + 1] - tasks[e]) / column_blocks, local = t - tasks[e];
        const int64_t pair = w.first()[e] + local % row_blocks * rows, n0 = local / row_blocks * columns;
        run_block(w, {i, e, pair, std::min(rows, w.first()[e + 1] - pair), n0, std::min(columns, w.n - n0)},
                  worker);
    };
    const int64_t total = per_weight * w.p.n_weights;
    constexpr int64_t worth = 1 << 16;  // as for matmul
    const auto run_piece = [&](int64_t first, int64_t last, int worker) {
        for (int64_t t = first; t < last; ++t) run(t, worker);
    };
    if (n_pairs * w.k * w.n * w.p.n_weights < worth)
        run_piece(0, total, 0);
    else
        exec.pool->run_stretches(total, run_piece);
}

size_t moe_matmul_scratch(const Exec& exec, const OpArgs& a) {
    return static_cast<size_t>(Work(exec, a).bytes);
}

namespace {

// Takes the choice from all but the best groups.
void limit_groups(const MoeRouteParams& p, double* choice, int64_t n) {
    const int64_t size = n / p.n_groups;
    std::array<double, max_expert_groups> scores;
    for (int64_t g = 0; g < p.n_groups; ++g) {
        double first = -std::numeric_limits<double>::infinity(), second = first;
        for (int64_t e = g * size; e < (g + 1) * size; ++e) {
            if (choice[e] > first)
                second = std::exchange(first, choice[e]);
            else
                second = std::max(second, choice[e]);
        }
        scores[static_cast<size_t>(g)] = p.gating == Gating::sigmoid && size > 1 ? first + second : first;
    }
    const double* const s = scores.data();
    for (int64_t g = 0; g < p.n_groups; ++g) {
        int64_t before = 0;
        for (int64_t o = 0; o < p.n_groups; ++o) before += s[o] > s[g] || (s[o] == s[g] && o < g);
        if (before >= p.n_groups_used)
            std::fill_n(choice + g * size, size, -std::numeric_limits<double>::infinity());
    }
}

// The largest of `choice`, falling, the lower number first among equals.
void choose(const double* choice, int64_t n, int64_t used, float* ids) {
    int64_t before = -1;  // the expert chosen last: the next one comes right behind it
    for (int64_t j = 0; j < used; ++j) {
        int64_t best = -1;
        for (int64_t e = 0; e < n; ++e) {
            const bool free =
                before < 0 || choice[e] < choice[before] || (choice[e] == choice[before] && e > before);
            if (free && (best < 0 || choice[e] > choice[best])) best = e;
        }
        before = std::max<int64_t>(best, 0);  // none is free only among NaNs
        ids[j] = static_cast<float>(before);
    }
}

// `choice` is scratch for n numbers; bias and scales may be null.
void route_row(const MoeRouteParams& p, const float* x, const float* bias, const float* scales, int64_t n,
               double* choice, float* out) {
    const bool plain = !bias && p.n_groups == 1;  // the logits fall as the scores do
    const float top = *std::max_element(x, x + n);
    double total = 1;
    const auto score = [&](int64_t e) {
        if (p.gating == Gating::sigmoid) return 1 / (1 + std::exp(-static_cast<double>(x[e])));
        return std::exp(static_cast<double>(x[e] - top)) / total;
    };
    if (p.gating == Gating::softmax && !(plain && p.normalize)) {
        total = 0;
        for (int64_t e = 0; e < n; ++e) total += std::exp(static_cast<double>(x[e] - top));
    }
    for (int64_t e = 0; e < n; ++e)
        choice[e] = static_cast<double>(plain ? x[e] : 0) + (plain ? 0 : score(e)) +
                    static_cast<double>(bias ? bias[e] : 0);
    if (p.n_groups > 1) limit_groups(p, choice, n);
    choose(choice, n, p.n_used, out);
    float* const weights = out + p.n_used;
    double sum = 0;
    for (int64_t j = 0; j < p.n_used; ++j) {
        choice[j] = score(static_cast<int64_t>(out[j]));
        sum += choice[j];
    }
    const double factor = static_cast<double>(p.scale) / (p.normalize ? sum : 1);
    for (int64_t j = 0; j < p.n_used; ++j) {
        const double own = scales ? static_cast<double>(scales[static_cast<int64_t>(out[j])]) : 1;
        weights[j] = static_cast<float>(choice[j] * factor * own);
    }
}

}  // namespace

size_t moe_route_scratch(const Exec& exec, const OpArgs& a) {
    return static_cast<size_t>(a.in[0].cols * exec.pool->size()) * sizeof(double);
}

void run_moe_route(const Exec& exec, const OpArgs& a, std::span<std::byte> scratch) {
    const auto& p = a.params->as<MoeRouteParams>();
    const Tensor &logits = a.in[0], &bias = a.in[1], &scales = a.in[2], &out = a.out[0];
    const int64_t n = logits.cols;
    exec.rows(logits.rows, n * (p.n_used + 8), [&](int64_t first, int64_t last, int worker) {
        double* const choice = reinterpret_cast<double*>(scratch.data()) + worker * n;
        for (int64_t t = first; t < last; ++t)
            route_row(p, logits.row(t), bias ? bias.row(0) : nullptr, scales ? scales.row(0) : nullptr, n,
                      choice, out.row(t));
    });
}

void run_moe_sum(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const Tensor &y = a.in[0], &routes = a.in[1], &shared = a.in[2], &gate = a.in[3], &out = a.out[0];
    const int64_t used = routes.cols / 2;
    exec.rows(y.rows, 2 * y.cols, [&](int64_t first, int64_t last, int) {
        for (int64_t t = first; t < last; ++t) {
            float* const to = out.row(t);
            std::fill_n(to, out.cols, 0.0f);
            for (int64_t j = 0; j < used; ++j)
                exec.kernels->rows.add(to, y.row(t) + j * out.cols, routes.row(t)[used + j], to, out.cols);
            if (!shared) continue;
            const float share = gate ? 1 / (1 + std::exp(-gate.row(t)[0])) : 1.0f;
            exec.kernels->rows.add(to, shared.row(t), share, to, out.cols);
        }
    });
}

}  // namespace nibble::cpu
