// Steps over several sequences of a model, of which any last rows' logits are wanted.
// Sequence s has the pages from s * pages_each on.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "src/engine/model_runner.h"

namespace nibble {

class OutputRows {
  public:
    struct Part {
        std::vector<int32_t> tokens;  // from position `first` on
        int32_t first = 0;
        int32_t wanted = 1;  // of the last rows
    };

    static Result<OutputRows> load(const std::filesystem::path& model, std::span<Backend* const> backends,
                                   int32_t gpu_layers = -1) {
        return load(NIBBLE_TRY(TensorFile::open(model)), backends, gpu_layers);
    }
    static Result<OutputRows> load(TensorFile model, std::span<Backend* const> backends,
                                   int32_t gpu_layers = -1) {
        RunnerConfig config;
        config.ctx = pages_each * config.page_size;
        config.max_sequences = n_sequences;
        config.max_outputs = 16;
        config.gpu_layers = gpu_layers;
        return OutputRows(NIBBLE_TRY(ModelRunner::load(std::move(model), config, backends)));
    }

    ModelRunner& runner() { return runner_; }

    // Part s is of sequence s. The logits that are wanted, one row behind the other.
    Result<std::vector<float>> step(std::span<const Part> parts) {
        Batch b;
        std::vector<std::vector<int32_t>> pages;
        const size_t groups = runner_.spec().kv_groups.size();
        b.slots.resize(groups);
        b.pages.resize(groups);
        for (const Part& p : parts) {
            const auto s = static_cast<int32_t>(pages.size()), first = static_cast<int32_t>(b.tokens.size()),
                       count = static_cast<int32_t>(p.tokens.size());
            auto& table = pages.emplace_back(pages_each);
            std::iota(table.begin(), table.end(), s * pages_each);
            b.sequences.push_back({first, count});
            b.tokens.insert(b.tokens.end(), p.tokens.begin(), p.tokens.end());
            for (int32_t i = 0; i < count; ++i) {
                b.positions.push_back(p.first + i);
                for (auto& slots : b.slots)
                    slots.push_back(s * pages_each * runner_.config().page_size + p.first + i);
                if (i >= count - p.wanted) b.out_rows.push_back(first + i);
            }
        }
        for (auto& tables : b.pages) tables.assign(pages.begin(), pages.end());
        const std::span<float> logits = NIBBLE_TRY(runner_.run(b));
        return std::vector<float>(logits.begin(), logits.end());
    }

  private:
    static constexpr int32_t pages_each = 2, n_sequences = 3;
    explicit OutputRows(ModelRunner runner) : runner_(std::move(runner)) {}

    ModelRunner runner_;
};

}  // namespace nibble
