// Locally typical sampling: keeps tokens whose surprise is close to the entropy.
// Where the set ends is found by a histogram over that distance, as top-p does it over logits.
#include <algorithm>
#include <cmath>

#include "src/sample/chain_table.h"

namespace nibble {

namespace {

struct Scored {
    double distance;  // | surprise - entropy |
    Candidate candidate;
    uint64_t weight;
};

bool more_typical(const Scored& a, const Scored& b) {
    return a.distance < b.distance || (a.distance == b.distance && precedes(a.candidate, b.candidate));
}

class Typical final : public Sampler {
  public:
    explicit Typical(double p) : p_(p) {}

    void apply(Candidates& candidates, const SampleStep&) override {
        const bool in_order = candidates.in_order();
        const uint64_t total = score(candidates);
        const auto enough = static_cast<uint64_t>(p_ * static_cast<double>(total));
        const Scored last = reach(std::max<uint64_t>(1, enough));
        auto& list = candidates.list();
        size_t kept = 0;
        for (const Scored& s : scored_) {
            if (!more_typical(last, s)) list[kept++] = s.candidate;
        }
        list.resize(kept);
        candidates.changed(in_order);
    }

    std::unique_ptr<Sampler> clone() const override { return std::make_unique<Typical>(p_); }

  private:
    uint64_t score(Candidates& candidates) {
        const double best = candidates.best();
        const uint64_t total = candidates.total_weight();
        const double normalizer = log_of_weight(total);
        double entropy = 0;
        scored_.clear();
        for (const Candidate& c : candidates.list()) {
            const double surprise = normalizer - (c.logit - best);
            const uint64_t weight = weight_of(c.logit - best);
            // A weight of 0 may come with an infinite surprise: it adds nothing, not NaN.
            if (weight > 0) entropy += static_cast<double>(weight) / static_cast<double>(total) * surprise;
            scored_.push_back({surprise, c, weight});
        }
        for (Scored& s : scored_) s.distance = std::abs(s.distance - entropy);
        return total;
    }

    Scored reach(uint64_t weight) {
        histogram_.clear();
        for (const Scored& s : scored_) histogram_.add(s.distance, s.weight);
        const auto at = histogram_.crossing(weight);
        crossing_.clear();
        for (const Scored& s : scored_) {
            if (WeightHistogram::bucket(s.distance) == at.bucket) crossing_.push_back(s);
        }
        return WeightHistogram::reach(crossing_, at, weight, more_typical,
                                      [](const Scored& s) { return s.weight; });
    }

    double p_;
    std::vector<Scored> scored_, crossing_;
    WeightHistogram histogram_;
};

}  // namespace

std::unique_ptr<Sampler> make_typical(const SamplerParams& p) {
    return p.typical_p < 1 ? std::make_unique<Typical>(p.typical_p) : nullptr;
}

}  // namespace nibble
