// Top-p (nucleus): keeps the best tokens that together hold a given probability.
// Where the nucleus ends is found by value; nothing but the tokens around its edge is sorted.
#include <algorithm>

#include "src/sample/chain_table.h"

namespace nibble {

namespace {

class TopP final : public Sampler {
  public:
    explicit TopP(double p) : p_(p) {}

    void apply(Candidates& candidates, const SampleStep&) override {
        const auto total = static_cast<double>(candidates.weigh());
        const auto enough = static_cast<uint64_t>(p_ * total);
        candidates.keep_through(candidates.reach(std::max<uint64_t>(1, enough)));
    }

    bool describe(DrawRow& row, std::span<const Token>, bool) const override {
        row.steps.push_back({DrawKind::top_p, {p_}});
        return true;
    }

    std::unique_ptr<Sampler> clone() const override { return std::make_unique<TopP>(*this); }

  private:
    double p_;
};

}  // namespace

std::unique_ptr<Sampler> make_top_p(const SamplerParams& p) {
    return p.top_p < 1 ? std::make_unique<TopP>(p.top_p) : nullptr;
}

}  // namespace nibble
