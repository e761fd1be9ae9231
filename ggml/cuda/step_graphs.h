// Steps that come again: recorded as graphs, and replayed from then on.
// Where products can be launched in two ways with the same bits, both are timed and the faster one is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ggml/cuda/runtime.h"

namespace nibble::cuda {

// A step's replays at best: products of so many rows in chains, and each by itself.
struct ChainTimes {
    int64_t rows;
    double chained_ms, apart_ms;
};

class StepGraphs {
  public:
    // Launches all of a step, its products in chains where those apply or each by itself. Returns of how many
    // rows the chains were; 0: there were none.
    using Launch = std::function<Result<int64_t>(bool chained)>;

    // `chained`: steps run in chains; and `measured`: unless they take longer that way.
    StepGraphs(int device, bool chained, bool measured)
        : device_(device), chained_(chained), measured_(chained && measured) {}

    // Runs the step that the number stands for: what it launches, and where, must be the same every time.
    // false: steps cannot be recorded, and this one has not run.
    Result<bool> run(Stream& stream, uint64_t step, const Launch& launch);
    // None may be running.
    void clear() { steps_.clear(); }

    int64_t replayed() const { return replayed_; }
    // What was found since this was asked last; of many steps the first.
    std::vector<ChainTimes> found() { return std::exchange(found_, {}); }

  private:
    struct Turn {
        Mark begin, end;
    };
    // Both ways in turn, the chains first.
    struct Trial {
        Graph apart;
        std::vector<Turn> turns;
    };
    struct Step {
        int seen = 0;
        int64_t rows = 0;  // of its chains
        std::optional<Graph> graph;
        std::unique_ptr<Trial> trial;
    };

    Result<std::optional<Graph>> record(Stream& stream, const Launch& launch, bool chained);
    Result<void> replay(Stream& stream, Step& step);
    void decide(Stream& stream, Step& step);

    int device_;
    bool chained_, measured_;
    std::map<uint64_t, Step> steps_;
    int64_t replayed_ = 0;
    std::vector<ChainTimes> found_;
};

}  // namespace nibble::cuda
