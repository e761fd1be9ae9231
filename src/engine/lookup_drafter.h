// LookupDrafter: the text goes on as it did behind the longest earlier occurrence of its last tokens.
// For answers that repeat the prompt or themselves: edits, quotations, code, tables. Needs no second model.
#pragma once

#include <unordered_map>

#include "src/engine/drafter.h"

namespace nibble {

// After A. Saxena, "Prompt Lookup Decoding" (https://github.com/apoorvumang/prompt-lookup-decoding), with the
// search of LZ77 compressors: chains of the places where the last two tokens occurred, the latest first.
class LookupDrafter : public Drafter {
  public:
    explicit LookupDrafter(Worth worth = {}) : worth_(worth) {}
    Result<std::vector<Token>> propose(std::span<const Token> tokens, int32_t limit) override;

  private:
    struct Match {
        size_t next = 0;    // the token behind the earlier occurrence
        size_t length = 0;  // tokens that agree; 0: there is none
    };
    void index(std::span<const Token> tokens);
    Match longest(std::span<const Token> tokens) const;

    Worth worth_;
    GuessOdds odds_;  // by the length of the match
    OpenGuess guess_;
    std::unordered_map<uint64_t, int32_t> latest_;  // of a pair of tokens: the place of its second one
    std::vector<int32_t> earlier_;                  // per token: where its pair occurred before; -1: nowhere
};

}  // namespace nibble
