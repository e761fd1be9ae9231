// Mirostat 2: truncates by surprise, and steers the limit so that the text's surprise meets a target.
// The only link whose state depends on how likely the accepted tokens were.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/sample/chain_table.h"

namespace nibble {

namespace {

class Mirostat final : public Sampler {
  public:
    Mirostat(double tau, double eta) : tau_(tau), eta_(eta), mu_(2 * tau) {}

    void apply(Candidates& candidates, const SampleStep&) override {
        // surprise in bits = (reference - logit) / ln 2
        reference_ = candidates.best() + log_of_weight(candidates.total_weight());
        candidates.keep_at_least(reference_ - mu_ * std::numbers::ln2);
        offered_ = candidates.list();
    }

    // A token that was not offered (a forced one, a prompt) teaches nothing.
    void accept(std::span<const Token> history) override {
        const auto it = std::ranges::find(offered_, history.back(), &Candidate::id);
        if (it != offered_.end()) {
            const double surprise = (reference_ - it->logit) / std::numbers::ln2;
            mu_ -= eta_ * (surprise - tau_);
        }
        offered_.clear();
    }

    void reset() override {
        mu_ = 2 * tau_;
        offered_.clear();
    }

    std::unique_ptr<Sampler> clone() const override { return std::make_unique<Mirostat>(*this); }

  private:
    double tau_, eta_;
    double mu_;  // the largest surprise allowed, in bits
    double reference_ = 0;
    std::vector<Candidate> offered_;  // what the last apply() kept
};

}  // namespace

std::unique_ptr<Sampler> make_mirostat(const SamplerParams& p) {
    return p.mirostat == 2 ? std::make_unique<Mirostat>(p.mirostat_tau, p.mirostat_eta) : nullptr;
}

}  // namespace nibble
