// Predictor: what guesses the tokens behind the next one from what a model has computed and the next token:
// the layer behind the model's others (ModelSpec::predictor), a small model that attends to the model's
// cache, or one that is its guest and guesses a block at once (attach()). Programs of their own over the
// model's cache; a ModelRunner has one where guesses are made.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/engine/batch.h"

namespace nibble {

class Predictor {
  public:
    // Recorded over weights that may not be placed yet; create() gives the programs memory, and says where
    // the pages of every group lie. `groups`: the
    // cache groups that it keeps keys and values of its own in; none: it keeps none.
    Predictor(PredictorPrograms programs, std::vector<int32_t> groups, BlockGuessSpec block = {});
    Result<void> create(std::span<Backend* const> backends, std::vector<PagePlaces> of_groups);

    std::span<const int32_t> groups() const { return groups_; }  // each once
    bool reads_all() const { return !groups_.empty(); }
    int32_t block_size() const { return block_.size; }  // 0: it guesses token by token
    std::vector<const Program*> programs() const;
    std::vector<const Program*> programs_of_a_guess() const;  // those that run for every one
    size_t allocated_bytes(size_t device) const;

    // Of a row at position p batch.tokens has the token at p + 1 and `hidden` the hidden state at p: the
    // model's, or one that this returned. Returns hidden states of the output rows, [out rows x the model's
    // n_embd]; valid until the next call, like states(). Who reads all wants every row of a text once, and of
    // its own guesses each at the position behind; who does not wants the last row alone, and its own guesses
    // at the same position. Who guesses in blocks reads the model's rows alone and returns nothing.
    Result<std::span<float>> read(const ModelSpec& spec, const Batch& batch, std::span<const float> hidden);
    // The rows of blocks, add_block() made them: states(), of the batch's output rows.
    Result<void> guess(const ModelSpec& spec, const Batch& batch);
    // Adds one behind a text's last token, which stands at `position`; `wanted` of its masks are output rows.
    // Slots and pages are the caller's to add: every row is a sequence by itself.
    void add_block(Batch& batch, int32_t token, int32_t position, int32_t wanted) const;

    // What logits() takes, of the last read or guess: a row per output.
    std::span<const float> states() const { return states_; }

    // Logits of the tokens at p + 2, or of a block's masks, [rows x tokens]: of all tokens, or of
    // first_tokens().
    Result<std::span<float>> logits(std::span<const float> states, bool all);

  private:
    PredictorPrograms programs_;
    std::vector<int32_t> groups_;
    std::vector<PagePlaces> places_;  // of all cache groups
    BlockGuessSpec block_;
    std::unique_ptr<Runner> layer_, head_, short_head_, block_rows_;
    std::vector<float> states_;
};

}  // namespace nibble
