// Scorer: a model over windows of a text, all logits of a window at once.
// What perplexity, divergence and calibration are made of.
#pragma once

#include <span>
#include <vector>

#include "src/engine/engine.h"

namespace nibble {

// One window of the text: tokens to run, and the first of them whose prediction counts.
struct Window {
    std::vector<Token> tokens;
    size_t first_scored = 1;  // position >= 1: a token is predicted from those before it
};

// Cuts a text into windows of `ctx` tokens that begin every `stride` tokens (1 <= stride <= ctx). In the
// first window everything from the second token on counts; in later ones the last `stride` tokens (all but
// the first, when stride is ctx). A BOS token, when the vocabulary adds one, stands at the start of every
// window in the place of its first token. An incomplete window at the end is left out.
std::vector<Window> cut_windows(std::span<const Token> text, size_t ctx, size_t stride,
                                std::optional<Token> bos);

class Scorer {
  public:
    // The engine must outlive the scorer and be loaded with max_outputs >= the window's length.
    explicit Scorer(Engine& engine);

    // Logits after each token of the window, [tokens x n_vocab]; valid until the next call.
    Result<std::span<float>> logits(const Window& window, Observer* observer = nullptr);
    // Runs the window for what the observer sees, with logits of its last quarter only: those of all take a
    // fifth of a small model's time, and the output matrix is one of many. So max_outputs need be no more.
    static int32_t outputs_of_reading(int32_t tokens) { return tokens - tokens / 4 * 3; }
    Result<void> read(const Window& window, Observer& observer);

  private:
    Batch batch(const Window& window) const;

    Engine* engine_;
    std::vector<int32_t> pages_;
};

}  // namespace nibble
