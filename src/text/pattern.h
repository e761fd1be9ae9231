// Pattern: a regular expression for names (tensors, files), matched anywhere in the text.
// PCRE2 without back-references' cost: match limits make a hostile pattern fail instead of hang.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ggml/base/result.h"

namespace nibble {

class Pattern {
  public:
    static Result<Pattern> create(
        const std::string& regex);  // the Error carries PCRE2's message and the place
    bool matches(std::string_view text) const;

  private:
    std::shared_ptr<const void> code_;
};

}  // namespace nibble
