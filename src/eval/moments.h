// MomentMeter: runs a text through a model for the feedback that its matrices are rounded with
// (src/quant/feedback.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>

#include "src/eval/scorer.h"
#include "src/quant/feedback.h"

namespace nibble {

// The sums of all matrices rarely fit the memory, so they are measured for as many as do, from the one that
// is asked for on; the text runs once for each such group. Matrices that share an input share its sums. All
// experts that choose among the same rows share those of all rows; where each has an input of its own, each
// has its own. A matrix that is the embedding as well is damped so much that each column counts by itself,
// too: what a row of it loses goes into the model as it is.
class MomentMeter : public FeedbackSource {
  public:
    struct Config {
        std::vector<std::string> order;  // canonical names, as they will be asked for; others are skipped
        size_t memory = 0;               // bytes for the sums; an input that needs more has no feedback
        std::function<void(size_t window, size_t windows)> progress = {};  // of the text's current run
    };
    // The engine, loaded for windows (Scorer), the windows and the pool outlive the meter.
    MomentMeter(Engine& engine, std::span<const Window> windows, ThreadPool& pool, Config config);
    ~MomentMeter() override;

    Result<std::span<const Feedback>> of(const std::string& name) override;
    // Matrices without feedback because the sums of their inputs do not fit the memory.
    const std::vector<std::string>& left_out() const { return left_out_; }

  private:
    struct Input;
    class Watcher;
    size_t bytes(const Instr& instr) const;
    Result<void> measure(size_t first);

    Engine* engine_;
    Scorer scorer_;
    std::span<const Window> windows_;
    ThreadPool* pool_;
    Config config_;
    std::map<std::string, const Instr*> instr_of_;  // the first that reads the matrix's input
    std::map<const Instr*, Input> inputs_;          // of the current group
    std::set<std::string> embedded_;                // names
    std::vector<std::string> left_out_;
};

}  // namespace nibble
