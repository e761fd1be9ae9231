// Detokenizer: generated tokens to text that can be printed at once: complete UTF-8 characters only.
// Control tokens have no text, but for those that mark thoughts. Bytes that can never become a character are
// shown as U+FFFD.
#pragma once

#include <string>

#include "src/text/tokenizer.h"

namespace nibble {

class Detokenizer {
  public:
    // `fresh`: the tokens are a text of their own, so the space that SentencePiece puts before a text is
    // taken off. Not so for what continues a prompt: there a first space is part of the answer. The tokenizer
    // must outlive the detokenizer.
    explicit Detokenizer(const Tokenizer& tokenizer, bool fresh = false);

    std::string push(Token token);
    std::string flush();  // what was held back: the beginning of a character, shown as U+FFFD
    bool holds() const { return !pending_.empty(); }

  private:
    const Tokenizer* tokenizer_;
    bool strip_space_;
    PartReader parts_;
    std::string pending_;  // at most 3 bytes between calls: the beginning of a character
};

}  // namespace nibble
