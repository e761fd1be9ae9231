// Top-n-sigma: keeps the logits within n standard deviations of the best one.
// Works on logits, so that a temperature applied later does not change what is kept.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/sample/chain_table.h"

namespace nibble {

namespace {

// Two lanes, in the vector types of GCC and Clang: every 64-bit machine has registers for them.
using Double2 [[gnu::vector_size(16)]] = double;

// Of the finite ones among n logits, `best` being the largest. Sums of distances from the best and of their
// squares, in four partial sums of a fixed arrangement: one pass, and the same to the last bit everywhere.
template <class Logit>
double standard_deviation(size_t n, double best, Logit logit) {
    Double2 count[2] = {}, sum[2] = {}, squares[2] = {};
    const auto add = [&](size_t lane, Double2 x) {
        const Double2 zero = {}, one = {1, 1};
        const auto finite = x >= double{std::numeric_limits<float>::lowest()};
        const Double2 d = finite ? x - best : zero;
        count[lane] += finite ? one : zero;
        sum[lane] += d;
        squares[lane] += d * d;
    };
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        add(0, Double2{logit(i), logit(i + 1)});
        add(1, Double2{logit(i + 2), logit(i + 3)});
    }
    for (; i < n; ++i) add(0, Double2{logit(i), -std::numeric_limits<double>::infinity()});
    const auto joined = [](const Double2* parts) {
        return (parts[0][0] + parts[0][1]) + (parts[1][0] + parts[1][1]);
    };
    const double mean = joined(sum) / joined(count);
    return std::sqrt(std::max(0.0, joined(squares) / joined(count) - mean * mean));
}

class TopNSigma final : public Sampler {
  public:
    explicit TopNSigma(double n) : n_(n) {}

    void apply(Candidates& candidates, const SampleStep&) override {
        candidates.need_rest();
        const double sigma = standard_deviation(candidates.size(), candidates.best(),
                                                [&](size_t i) { return candidates.stored(i); });
        candidates.keep_at_least(candidates.best() - n_ * sigma);
    }

    std::unique_ptr<Sampler> clone() const override { return std::make_unique<TopNSigma>(*this); }

  private:
    double n_;
};

}  // namespace

std::unique_ptr<Sampler> make_top_n_sigma(const SamplerParams& p) {
    return p.top_n_sigma > 0 ? std::make_unique<TopNSigma>(p.top_n_sigma) : nullptr;
}

}  // namespace nibble
