// ModelDrafter: a smaller model with the same tokens says how the text goes on.
// For texts that repeat nothing; one smaller model serves all sequences of an engine.
#pragma once

#include <optional>
#include <string>

#include "src/engine/drafter.h"
#include "src/engine/engine.h"

namespace nibble {

// The first token that both have and that is another text in one than in the other, in words; empty where
// there is none. Unused tokens, which are called anything, count for nothing.
std::string different_token(const Tokenizer& model, const Tokenizer& other);

// An Error unless both have the same text for every token that both have, which must be nearly all.
Result<void> check_same_tokens(const Tokenizer& model, const Tokenizer& draft, const std::string& draft_name);

class ModelDrafter : public Drafter {
  public:
    // `model` must outlive the drafter and serve drafters alone. It takes its best token, under what
    // `sampling` says of single tokens. `worth`: with what a step of `model` costs.
    ModelDrafter(Engine& model, SamplerParams sampling, Worth worth);
    ~ModelDrafter() override;
    Result<std::vector<Token>> propose(std::span<const Token> tokens, int32_t limit) override;

  private:
    Result<RequestId> ask(std::span<const Token> tokens, int32_t n);
    Result<bool> has_read(std::span<const Token> tokens);
    Result<std::vector<Token>> continued(std::span<const Token> tokens, int32_t limit);

    Engine* model_;
    SamplerParams sampling_;
    Worth worth_;
    GuessRecord record_;
    bool read_ = false;  // the model has seen the prompt
    std::optional<RequestId> reading_;
};

}  // namespace nibble
