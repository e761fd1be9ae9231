// Steps that come again: recorded as graphs the second time, and replayed from then on.
// A replay takes the host one call, where a model's launches would take it longer than the card.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "ggml/cuda/runtime.h"

namespace nibble::cuda {

class StepGraphs {
  public:
    // Launches all of a step.
    using Launch = std::function<Result<void>()>;

    // Runs the step that the number stands for: what it launches, and where, must be the same every time.
    // false: steps cannot be recorded, and this one has not run.
    Result<bool> run(Stream& stream, uint64_t step, const Launch& launch);
    // None may be running.
    void clear() { steps_.clear(); }

    int64_t replayed() const { return replayed_; }

  private:
    struct Step {
        bool seen = false;
        std::optional<Graph> graph;
    };

    std::map<uint64_t, Step> steps_;
    int64_t replayed_ = 0;
};

}  // namespace nibble::cuda
