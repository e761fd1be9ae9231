// How a step becomes a graph: run by itself first, then recorded, then timed where there is a choice.
// Nothing waits for a measurement: it is read when a later replay finds it done.
#include "ggml/cuda/step_graphs.h"

#include <algorithm>

namespace nibble::cuda {
namespace {

constexpr size_t most_steps = 64;
// Of each way; the first does not count, for it brings the graph to the device.
constexpr size_t turns_each = 6;

}  // namespace

Result<std::optional<Graph>> StepGraphs::record(Stream& stream, const Launch& launch, bool chained) {
    std::optional<Graph> recorded;
    if (!stream.begin_capture()) return recorded;
    const auto launched = launch(chained);
    auto graph = stream.end_capture();
    NIBBLE_TRY(launched);
    if (graph) recorded = std::move(*graph);
    return recorded;
}

// The faster way is known once the last turns have ended. The graph that is dropped may still be running: it
// is freed when it ends.
void StepGraphs::decide(Stream& stream, Step& step) {
    const std::vector<Turn>& turns = step.trial->turns;
    ChainTimes best{step.rows, 0, 0};
    for (size_t i = 2; i < turns.size(); ++i) {
        const std::optional<double> ms = stream.milliseconds(turns[i].begin, turns[i].end);
        if (!ms) return;
        double& least = i % 2 == 0 ? best.chained_ms : best.apart_ms;
        least = i < 4 ? *ms : std::min(least, *ms);
    }
    if (best.apart_ms < best.chained_ms) step.graph = std::move(step.trial->apart);
    step.trial.reset();
    if (found_.size() < most_steps) found_.push_back(best);
}

Result<void> StepGraphs::replay(Stream& stream, Step& step) {
    ++replayed_;
    const bool trying = step.trial && step.trial->turns.size() < 2 * turns_each;
    if (step.trial && !trying) decide(stream, step);
    if (!trying) {
        step.graph->launch(stream);
        return {};
    }
    Turn turn{NIBBLE_TRY(Mark::create(device_, true)), NIBBLE_TRY(Mark::create(device_, true))};
    const bool chained = step.trial->turns.size() % 2 == 0;
    stream.put(turn.begin);
    (chained ? *step.graph : step.trial->apart).launch(stream);
    stream.put(turn.end);
    step.trial->turns.push_back(std::move(turn));
    return {};
}

Result<bool> StepGraphs::run(Stream& stream, uint64_t number, const Launch& launch) {
    if (steps_.size() >= most_steps && !steps_.contains(number)) {
        NIBBLE_TRY(stream.synchronize());  // one of them may be running
        steps_.clear();
    }
    Step& step = steps_[number];
    if (!step.graph) {
        const bool choice = measured_ && step.rows > 0;
        // The first time, in either way, by itself: it also loads the kernels.
        if (step.seen++ == 0) {
            step.rows = NIBBLE_TRY(launch(chained_));
            return true;
        }
        if (choice && step.seen == 2) {
            NIBBLE_TRY(launch(false));
            return true;
        }
        step.graph = NIBBLE_TRY(record(stream, launch, chained_));
        if (!step.graph) return false;
        if (choice) {
            if (auto apart = NIBBLE_TRY(record(stream, launch, false)))
                step.trial = std::make_unique<Trial>(Trial{std::move(*apart), {}});
            else
                stream.forget_error();  // done without the choice
        }
    }
    NIBBLE_TRY(replay(stream, step));
    return true;
}

}  // namespace nibble::cuda
