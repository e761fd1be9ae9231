// Detokenizer: generated tokens to text that can be printed at once: complete UTF-8 characters only.
// Control tokens have no text. Bytes that can never become a character are shown as U+FFFD.
#pragma once

#include <string>

#include "src/text/tokenizer.h"

namespace nibble {

class Detokenizer {
  public:
    explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

    std::string push(Token token);
    std::string flush();  // what was held back; an unfinished character becomes U+FFFD

  private:
    const Tokenizer* tokenizer_;
    std::string pending_;  // at most 3 bytes between calls: the beginning of a character
};

}  // namespace nibble
