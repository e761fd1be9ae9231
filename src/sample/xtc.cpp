// XTC, exclude top choices: now and then removes all likely tokens but the least likely of them.
// Its random number has a lane of its own: the pick that follows is not shifted by it.
#include "src/sample/chain_table.h"

namespace nibble {

namespace {

class Xtc final : public Sampler {
  public:
    Xtc(double probability, double threshold) : probability_(probability), threshold_(threshold) {}

    void apply(Candidates& candidates, const SampleStep& step) override {
        if (step.rng.uniform(RngLane::xtc) >= probability_) return;
        const bool in_order = candidates.in_order();
        const double best = candidates.best();
        const double enough = threshold_ * static_cast<double>(candidates.total_weight());
        const auto top_choice = [&](const Candidate& c) {
            return static_cast<double>(weight_of(c.logit - best)) >= enough;
        };
        auto& list = candidates.list();
        const Candidate* last = nullptr;
        for (const Candidate& c : list) {
            if (top_choice(c) && (!last || precedes(*last, c))) last = &c;
        }
        if (!last) return;
        const Token stays = last->id;
        std::erase_if(list, [&](const Candidate& c) { return c.id != stays && top_choice(c); });
        candidates.changed(in_order);
    }

    std::unique_ptr<Sampler> clone() const override { return std::make_unique<Xtc>(*this); }

  private:
    double probability_, threshold_;
};

}  // namespace

std::unique_ptr<Sampler> make_xtc(const SamplerParams& p) {
    return p.xtc_probability > 0 ? std::make_unique<Xtc>(p.xtc_probability, p.xtc_threshold) : nullptr;
}

}  // namespace nibble
