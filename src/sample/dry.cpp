// DRY: penalizes tokens that would continue a repetition, exponentially in its length.
// One linear pass per step: the Z function of the reversed history.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "src/sample/chain_table.h"

namespace nibble {

namespace {

class Dry final : public Sampler {
  public:
    explicit Dry(const SamplerParams& p)
        : multiplier_(p.dry_multiplier),
          base_(p.dry_base),
          allowed_(static_cast<size_t>(p.dry_allowed_length)),
          last_n_(p.dry_penalty_last_n),
          breakers_(p.dry_breaker_tokens.begin(), p.dry_breaker_tokens.end()) {}

    void apply(Candidates& candidates, const SampleStep& step) override {
        find_repetitions(step.history);
        if (repetitions_.empty()) return;
        candidates.edit(repetitions_, [this](double logit, size_t length) {
            // Finite, so that the token stays possible where nothing else is.
            const double penalty = multiplier_ * std::pow(base_, static_cast<double>(length - allowed_));
            return logit - std::min<double>(penalty, std::numeric_limits<float>::max());
        });
    }

    std::unique_ptr<Sampler> clone() const override { return std::make_unique<Dry>(*this); }

  private:
    // With r = reversed history (r[0] the newest token), z[k] is the number of tokens that r and r[k..] have
    // in common from their beginnings. r[k-1] is the token that followed the earlier occurrence.
    void find_repetitions(std::span<const Token> history) {
        repetitions_.clear();
        const size_t window = last_n_ < 0 ? history.size() : std::min(history.size(), size_t(last_n_));
        const auto r = [&](size_t i) { return history[history.size() - 1 - i]; };
        size_t reach = 0;  // a match ends at the first breaker in r
        while (reach < window && !breakers_.contains(r(reach))) ++reach;
        if (reach < allowed_) return;

        z_.assign(window, 0);
        size_t left = 0, right = 0;  // the match [left, right) that reaches furthest so far
        for (size_t k = 1; k < window; ++k) {
            size_t n = k < right ? std::min(right - k, z_[k - left]) : 0;
            while (n < reach && k + n < window && r(n) == r(k + n)) ++n;
            z_[k] = n;
            if (k + n > right) left = k, right = k + n;
            if (n >= allowed_ && !breakers_.contains(r(k - 1))) {
                size_t& longest = repetitions_[r(k - 1)];
                longest = std::max(longest, n);
            }
        }
    }

    double multiplier_, base_;
    size_t allowed_;
    int32_t last_n_;
    std::unordered_set<Token> breakers_;
    std::vector<size_t> z_;
    std::unordered_map<Token, size_t> repetitions_;  // token -> longest repetition that it would continue
};

}  // namespace

std::unique_ptr<Sampler> make_dry(const SamplerParams& p) {
    if (p.dry_multiplier == 0 || p.dry_penalty_last_n == 0) return nullptr;
    return std::make_unique<Dry>(p);
}

}  // namespace nibble
