// Min-p: keeps tokens whose probability is at least a given part of the best one's.
// The normalizer cancels, so it is a threshold on logits: l >= best + ln(min_p).
#include <cmath>

#include "src/sample/chain_table.h"

namespace nibble {

namespace {

class MinP final : public Sampler {
  public:
    explicit MinP(double p) : log_p_(std::log(p)) {}
    void apply(Candidates& candidates, const SampleStep&) override {
        candidates.keep_at_least(candidates.best() + log_p_);
    }
    bool describe(DrawRow& row, std::span<const Token>, bool) const override {
        row.steps.push_back({DrawKind::min_p, {log_p_}});
        return true;
    }

    std::unique_ptr<Sampler> clone() const override { return std::make_unique<MinP>(*this); }

  private:
    double log_p_;
};

}  // namespace

std::unique_ptr<Sampler> make_min_p(const SamplerParams& p) {
    return p.min_p > 0 ? std::make_unique<MinP>(p.min_p) : nullptr;
}

}  // namespace nibble
