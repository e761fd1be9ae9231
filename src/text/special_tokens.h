// SpecialTokens: finds tokens that are matched in raw text before anything else, longest first.
// Candidates are grouped by first byte, so plain text costs one look-up per character.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "src/text/vocab.h"

namespace nibble {

class SpecialTokens {
  public:
    void add(std::string_view text, Token id, bool control);  // the text must stay where it is
    void finish();                                            // before the first find()

    struct Match {
        size_t begin, size;
        Token id;
    };
    // The leftmost, there longest, match at or after `from`. Control tokens only if asked for.
    std::optional<Match> find(std::string_view text, size_t from, bool control) const;

  private:
    struct Entry {
        std::string_view text;
        Token id;
        bool control;
    };
    std::array<std::vector<Entry>, 256> by_first_;
};

}  // namespace nibble
