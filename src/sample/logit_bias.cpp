// Adds a bias to the logits of single tokens.
// Several biases of one token add up.
#include <unordered_map>

#include "src/sample/chain_table.h"

namespace nibble {

namespace {

class Bias final : public Sampler {
  public:
    explicit Bias(const std::vector<LogitBias>& biases) {
        for (const LogitBias& b : biases) by_token_[b.token] += b.bias;
    }

    void apply(Candidates& candidates, const SampleStep&) override {
        candidates.edit(by_token_, [](double logit, double bias) { return logit + bias; });
    }

    bool describe(DrawRow& row, std::span<const Token>, bool) const override {
        for (const auto& [token, bias] : by_token_)
            row.steps.push_back({DrawKind::bias, {static_cast<double>(token), bias}});
        return true;
    }

    std::unique_ptr<Sampler> clone() const override { return std::make_unique<Bias>(*this); }

  private:
    std::unordered_map<Token, double> by_token_;
};

}  // namespace

std::unique_ptr<Sampler> make_logit_bias(const SamplerParams& p) {
    if (p.logit_bias.empty()) return nullptr;
    return std::make_unique<Bias>(p.logit_bias);
}

}  // namespace nibble
