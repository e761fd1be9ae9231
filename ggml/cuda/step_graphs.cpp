// How a step becomes a graph: run by itself first, then recorded.
// Of the many shapes that steps can have only so many are kept.
#include "ggml/cuda/step_graphs.h"

#include <utility>

namespace nibble::cuda {
namespace {

constexpr size_t most_steps = 64;

Result<std::optional<Graph>> record(Stream& stream, const StepGraphs::Launch& launch) {
    std::optional<Graph> recorded;
    if (!stream.begin_capture()) return recorded;
    const auto launched = launch();
    auto graph = stream.end_capture();
    NIBBLE_TRY(launched);
    if (graph) recorded = std::move(*graph);
    return recorded;
}

}  // namespace

Result<bool> StepGraphs::run(Stream& stream, uint64_t number, const Launch& launch) {
    if (steps_.size() >= most_steps && !steps_.contains(number)) {
        NIBBLE_TRY(stream.synchronize());  // one of them may be running
        steps_.clear();
    }
    Step& step = steps_[number];
    if (!step.graph) {
        // The first time by itself: it also loads the kernels.
        if (!std::exchange(step.seen, true)) {
            NIBBLE_TRY(launch());
            return true;
        }
        step.graph = NIBBLE_TRY(record(stream, launch));
        if (!step.graph) return false;
    }
    step.graph->launch(stream);
    ++replayed_;
    return true;
}

}  // namespace nibble::cuda
