// Repetition, frequency and presence penalties over a window of the accepted tokens.
// The counts follow the window, so a step costs the distinct tokens in it and nothing else.
#include <algorithm>
#include <unordered_map>

#include "ggml/base/draw_row.h"
#include "src/sample/chain_table.h"

namespace nibble {

namespace {

class Penalties final : public Sampler {
  public:
    explicit Penalties(const SamplerParams& p)
        : repeat_(p.repeat_penalty),
          frequency_(p.frequency_penalty),
          presence_(p.presence_penalty),
          last_n_(p.repeat_last_n) {}

    void apply(Candidates& candidates, const SampleStep&) override {
        candidates.edit(counts_, [this](double logit, int32_t count) {
            return penalized(logit, count, repeat_, frequency_, presence_);
        });
    }

    void accept(std::span<const Token> history) override {
        ++counts_[history.back()];
        if (last_n_ < 0 || history.size() <= static_cast<size_t>(last_n_)) return;
        const auto leaving = counts_.find(history[history.size() - 1 - static_cast<size_t>(last_n_)]);
        if (--leaving->second == 0) counts_.erase(leaving);
    }

    void reset() override { counts_.clear(); }
    bool describe(DrawRow& row, std::span<const Token> history, bool ahead) const override {
        const size_t drawn = ahead ? 1 : 0;
        const size_t window = last_n_ < 0 ? history.size() + drawn : static_cast<size_t>(last_n_);
        const size_t known = std::min(window - drawn, history.size());
        if (known + drawn > most_recent) return false;
        row.steps.push_back({DrawKind::penalties, {repeat_, frequency_, presence_}});
        row.recent.assign(history.end() - static_cast<std::ptrdiff_t>(known), history.end());
        if (ahead) row.recent.push_back(drawn_before);
        return true;
    }

    std::unique_ptr<Sampler> clone() const override { return std::make_unique<Penalties>(*this); }

  private:
    double repeat_, frequency_, presence_;
    int32_t last_n_;
    std::unordered_map<Token, int32_t> counts_;  // of the tokens in the window
};

}  // namespace

std::unique_ptr<Sampler> make_penalties(const SamplerParams& p) {
    const bool neutral = p.repeat_penalty == 1 && p.frequency_penalty == 0 && p.presence_penalty == 0;
    if (neutral || p.repeat_last_n == 0) return nullptr;
    return std::make_unique<Penalties>(p);
}

}  // namespace nibble
