// One sequence over a ModelRunner with the simplest possible cache: page i holds tokens [i * size, ...).
// Lets tests drive the forward pass without an engine.
#pragma once

#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "ggml/ops/reference_backend.h"
#include "src/engine/model_runner.h"

namespace nibble {

class SingleSequence {
  public:
    static Result<SingleSequence> load(
        const std::filesystem::path& path, Type kv_type,
        std::shared_ptr<Backend> backend = std::make_shared<ReferenceBackend>(), int32_t ctx = 0,
        bool predict = false, const std::filesystem::path& assistant = {}) {
        RunnerConfig config;
        config.ctx = ctx;
        config.predict = predict;
        config.assistant = assistant;
        config.k_type = config.v_type = kv_type;
        return load(NIBBLE_TRY(TensorFile::open(path)), std::move(config), std::move(backend));
    }
    static Result<SingleSequence> load(TensorFile file, RunnerConfig config,
                                       std::shared_ptr<Backend> backend) {
        SingleSequence s;
        s.backend_ = std::move(backend);
        Backend* const list[] = {s.backend_.get()};
        s.runner_ = std::make_unique<ModelRunner>(
            NIBBLE_TRY(ModelRunner::load(std::move(file), std::move(config), list)));
        s.pages_.resize(static_cast<size_t>(s.runner_->n_pages()));
        std::iota(s.pages_.begin(), s.pages_.end(), 0);
        return s;
    }

    void restart() { length_ = 0; }
    int32_t length() const { return length_; }
    ModelRunner& runner() { return *runner_; }

    // Appends tokens; the logits of the last one.
    Result<std::span<float>> feed(std::span<const int32_t> tokens, Observer* observer = nullptr) {
        const Batch b = batch(tokens, length_);
        length_ += static_cast<int32_t>(tokens.size());
        return runner_->run(b, observer);
    }

    // The predictor's hidden state behind the last of these positions, from `first` on, given a state for
    // each and the tokens behind them.
    Result<std::span<float>> predict(std::span<const int32_t> next, int32_t first,
                                     std::span<const float> hidden) {
        return runner_->predictor()->read(runner_->spec(), batch(next, first), hidden);
    }

    // A guest reads the last `count` rows, which were fed by the last step.
    Result<void> read_sources(int32_t count) {
        const ModelSpec& spec = runner_->spec();
        const auto parts = NIBBLE_TRY(runner_->hidden());
        const auto width = static_cast<size_t>(spec.n_embd);
        std::vector<float> rows;
        for (size_t r = 0; r < static_cast<size_t>(count); ++r)
            for (const auto part : parts)
                rows.insert(rows.end(), part.begin() + r * width, part.begin() + (r + 1) * width);
        Batch b = batch(std::vector<int32_t>(static_cast<size_t>(count), 0), length_ - count);
        b.out_rows.clear();
        NIBBLE_TRY(runner_->predictor()->read(spec, b, rows));
        return {};
    }

    // Logits of the masks of its block behind `token`.
    Result<std::span<float>> guess_block(int32_t token) {
        Predictor& guest = *runner_->predictor();
        const size_t groups = runner_->spec().kv_groups.size();
        Batch b;
        guest.add_block(b, token, length_, guest.block_size() - 1);
        std::vector<int32_t> slots(b.tokens.size());
        std::iota(slots.begin(), slots.end(), length_);
        b.slots.assign(groups, slots);
        b.pages.assign(groups, std::vector(b.tokens.size(), std::span<const int32_t>(pages_)));
        NIBBLE_TRY(guest.guess(runner_->spec(), b));
        return guest.logits(guest.states(), true);
    }

  private:
    Batch batch(std::span<const int32_t> tokens, int32_t first) const {
        Batch b;
        b.tokens.assign(tokens.begin(), tokens.end());
        b.positions.resize(tokens.size());
        std::iota(b.positions.begin(), b.positions.end(), first);
        b.sequences = {{0, static_cast<int32_t>(tokens.size())}};
        b.out_rows = {static_cast<int32_t>(tokens.size()) - 1};
        const size_t groups = runner_->spec().kv_groups.size();
        b.slots.assign(groups, b.positions);
        b.pages.assign(groups, {pages_});
        return b;
    }

    std::shared_ptr<Backend> backend_;
    std::unique_ptr<ModelRunner> runner_;
    std::vector<int32_t> pages_;
    int32_t length_ = 0;
};

}  // namespace nibble
