// Top-k: keeps the k best tokens.
// The selection itself, without sorting the vocabulary, is Candidates::keep_top.
#include "src/sample/chain_table.h"

namespace nibble {

namespace {

class TopK final : public Sampler {
  public:
    explicit TopK(size_t k) : k_(k) {}
    void apply(Candidates& candidates, const SampleStep&) override { candidates.keep_top(k_); }
    bool describe(DrawRow& row, std::span<const Token>, bool) const override {
        row.steps.push_back({DrawKind::top_k, {static_cast<double>(k_)}});
        return true;
    }

    std::unique_ptr<Sampler> clone() const override { return std::make_unique<TopK>(*this); }

  private:
    size_t k_;
};

}  // namespace

std::unique_ptr<Sampler> make_top_k(const SamplerParams& p) {
    return p.top_k > 0 ? std::make_unique<TopK>(static_cast<size_t>(p.top_k)) : nullptr;
}

}  // namespace nibble
