// PerplexityMeter: one softmax per position in double precision, positions in parallel.
// Every position is kept, so that percentiles are exact.
#include "src/eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "src/sample/logprobs.h"

namespace nibble {
namespace {

// KL(p || q) = sum p (ln p - ln q) over the vocabulary.
double divergence(std::span<const float> p, double p_norm, std::span<const float> q, double q_norm) {
    double kl = 0;
    for (size_t i = 0; i < p.size(); ++i) {
        const double lp = static_cast<double>(p[i]) - p_norm, lq = static_cast<double>(q[i]) - q_norm;
        if (lp > -60) kl += std::exp(lp) * (lp - lq);
    }
    return std::max(kl, 0.0);
}

size_t best(std::span<const float> x) { return static_cast<size_t>(std::ranges::max_element(x) - x.begin()); }

struct Mean {
    double mean = 0, error = 0;
};
template <class Get>
Mean mean_of(size_t n, Get get) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; ++i) sum += get(i);
    const double mean = n ? sum / static_cast<double>(n) : 0;
    for (size_t i = 0; i < n; ++i) squares += (get(i) - mean) * (get(i) - mean);
    return {mean, n > 1 ? std::sqrt(squares / static_cast<double>(n - 1) / static_cast<double>(n)) : 0};
}

}  // namespace

Result<void> PerplexityMeter::add(const Window& w, std::span<const float> logits, std::span<const float> base,
                                  size_t n_vocab) {
    const size_t first = w.first_scored, n = w.tokens.size() - std::min(first, w.tokens.size()),
                 begin = positions_.size();
    has_base_ = !base.empty();
    positions_.resize(begin + n);
    std::mutex mutex;
    Result<void> failure;
    pool_->run(static_cast<int64_t>(n), [&](int64_t i, int) {
        const size_t at = first + static_cast<size_t>(i) - 1;  // the row that predicts token at + 1
        const auto token = static_cast<size_t>(w.tokens[at + 1]);
        const auto row = logits.subspan(at * n_vocab, n_vocab);
        Position& p = positions_[begin + static_cast<size_t>(i)];
        const auto norm = log_sum_exp(row);
        const auto base_row = has_base_ ? base.subspan(at * n_vocab, n_vocab) : std::span<const float>();
        const auto base_norm = has_base_ ? log_sum_exp(base_row) : Result<double>(0.0);
        if (!norm || !base_norm) {
            const std::lock_guard lock(mutex);
            failure = !norm ? norm.error() : base_norm.error();
            return;
        }
        p.nll = *norm - static_cast<double>(row[token]);
        if (!has_base_) return;
        p.base_nll = *base_norm - static_cast<double>(base_row[token]);
        p.kl = divergence(base_row, *base_norm, row, *norm);
        p.same_top = best(base_row) == best(row);
    });
    return failure;
}

PerplexityResult PerplexityMeter::result() const {
    PerplexityResult r;
    r.tokens = positions_.size();
    const Mean nll = mean_of(r.tokens, [&](size_t i) { return positions_[i].nll; });
    r.mean_nll = nll.mean;
    r.stderr_nll = nll.error;
    r.perplexity = std::exp(nll.mean);
    r.has_base = has_base_;
    if (!has_base_ || positions_.empty()) return r;
    r.base_perplexity = std::exp(mean_of(r.tokens, [&](size_t i) { return positions_[i].base_nll; }).mean);
    const Mean kl = mean_of(r.tokens, [&](size_t i) { return positions_[i].kl; });
    r.mean_kl = kl.mean;
    r.stderr_kl = kl.error;
    std::vector<double> sorted;
    for (const Position& p : positions_) sorted.push_back(p.kl);
    std::ranges::sort(sorted);
    const auto percentile = [&](double share) {
        return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
    };
    r.kl_median = percentile(0.5), r.kl_p90 = percentile(0.9), r.kl_p99 = percentile(0.99),
    r.kl_max = sorted.back();
    const auto same = std::ranges::count_if(positions_, &Position::same_top);
    r.top1_agreement = static_cast<double>(same) / static_cast<double>(r.tokens);
    return r;
}

}  // namespace nibble
