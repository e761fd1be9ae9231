// Temperature, fixed or moving with the entropy of the candidates.
// Scales the distance to the best logit: no overflow for tiny temperatures, and the softmax does not see it.
#include <algorithm>
#include <cmath>

#include "src/sample/chain_table.h"

namespace nibble {

namespace {

class Temperature final : public Sampler {
  public:
    Temperature(double temperature, double range, double exponent)
        : temperature_(temperature), range_(range), exponent_(exponent) {}

    void apply(Candidates& candidates, const SampleStep&) override {
        const double t = range_ > 0 ? dynamic(candidates) : temperature_;
        if (t == 0) return candidates.keep_top(1);
        candidates.scale(t);
    }

    bool describe(DrawRow& row, std::span<const Token>, bool) const override {
        if (range_ > 0 || temperature_ == 0) return false;
        row.steps.push_back({DrawKind::temperature, {temperature_}});
        return true;
    }

    std::unique_ptr<Sampler> clone() const override { return std::make_unique<Temperature>(*this); }

  private:
    double dynamic(Candidates& candidates) const {
        const double best = candidates.best();
        const uint64_t weights = candidates.total_weight();
        const double normalizer = log_of_weight(weights), total = static_cast<double>(weights);
        double entropy = 0;
        for (const Candidate& c : candidates.list()) {
            const auto weight = static_cast<double>(weight_of(c.logit - best));
            if (weight > 0) entropy += weight / total * (normalizer - (c.logit - best));
        }
        const size_t n = candidates.size();
        const double share = n > 1 ? std::clamp(entropy / std::log(static_cast<double>(n)), 0.0, 1.0) : 0.0;
        const double low = std::max(0.0, temperature_ - range_), high = temperature_ + range_;
        return low + (high - low) * std::pow(share, exponent_);
    }

    double temperature_, range_, exponent_;
};

}  // namespace

std::unique_ptr<Sampler> make_temperature(const SamplerParams& p) {
    if (p.temperature == 1 && p.dynatemp_range == 0) return nullptr;
    return std::make_unique<Temperature>(p.temperature, p.dynatemp_range, p.dynatemp_exponent);
}

}  // namespace nibble
