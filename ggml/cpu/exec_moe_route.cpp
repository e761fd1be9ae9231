// moe_route and moe_sum: the choice of each row's experts, and their outputs added up by its weights.
// A row is one task of one thread.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "ggml/cpu/exec.h"

namespace nibble::cpu {
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
