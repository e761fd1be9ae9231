// Predictor: the layer behind a model's others that guesses the token after the next (ModelSpec::predictor).
// Programs of their own over the model's weights and cache; a ModelRunner has one where guesses are made.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "src/engine/batch.h"

namespace nibble {

class Predictor {
  public:
    // Recorded over weights that may not be placed yet; create() gives the programs memory.
    explicit Predictor(PredictorPrograms programs) : programs_(std::move(programs)) {}
    Result<void> create(std::span<Backend* const> backends);

    std::array<const Program*, 3> programs() const;
    size_t allocated_bytes(size_t device) const;

    // Takes rows through the layer. A row at position p is given the hidden state there, which is the model's
    // or one that the layer returned, and batch.tokens has the token at p + 1. Returns hidden states, [out
    // rows x n_embd], of what position p + 1 would have; valid until the next call. Of a batch the cache
    // group of the layer alone counts.
    Result<std::span<float>> read(const ModelSpec& spec, const Batch& batch, std::span<const float> hidden);

    // Logits of the tokens that follow such states, [rows x tokens]: of all tokens, or of first_tokens().
    Result<std::span<float>> logits(std::span<const float> hidden, bool all);

  private:
    PredictorPrograms programs_;
    std::unique_ptr<Runner> layer_, head_, short_head_;
};

}  // namespace nibble
