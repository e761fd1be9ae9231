// Predictor: what guesses the token after the next from a model's last hidden state and the next token: the
// layer behind the model's others (ModelSpec::predictor), or a small model that attends to the model's cache
// (attach()). Programs of their own over the model's cache; a ModelRunner has one where guesses are made.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "src/engine/batch.h"

namespace nibble {

class Predictor {
  public:
    // Recorded over weights that may not be placed yet; create() gives the programs memory. `group`: the
    // cache group that it keeps keys and values of its own in; -1: it keeps none.
    Predictor(PredictorPrograms programs, int32_t group) : programs_(std::move(programs)), group_(group) {}
    Result<void> create(std::span<Backend* const> backends);

    int32_t group() const { return group_; }
    bool reads_all() const { return group_ >= 0; }
    std::array<const Program*, 3> programs() const;
    size_t allocated_bytes(size_t device) const;

    // Of a row at position p batch.tokens has the token at p + 1 and `hidden` the hidden state at p: the
    // model's, or one that this returned. Returns hidden states of the output rows, [out rows x the model's
    // n_embd]; valid until the next call, like states(). Who reads all wants every row of a text once, and of
    // its own guesses each at the position behind; who does not wants the last row alone, and its own guesses
    // at the same position.
    Result<std::span<float>> read(const ModelSpec& spec, const Batch& batch, std::span<const float> hidden);
    // What logits() takes, of the last read: a row per output.
    std::span<const float> states() const { return states_; }

    // Logits of the tokens at p + 2, [rows x tokens]: of all tokens, or of first_tokens().
    Result<std::span<float>> logits(std::span<const float> states, bool all);

  private:
    PredictorPrograms programs_;
    int32_t group_ = -1;
    std::unique_ptr<Runner> layer_, head_, short_head_;
    std::vector<float> states_;
};

}  // namespace nibble
