// SpecialTokens: finds tokens that are matched in raw text before anything else, the longest one first.
// A trie: plain text costs one table look-up per byte, however many special tokens there are.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "src/text/vocab.h"

namespace nibble {

class SpecialTokens {
  public:
    SpecialTokens() { roots_.fill(-1); }
    // Empty texts are ignored; of equal texts the first one added wins.
    void add(std::string_view text, Token id, bool control);

    struct Match {
        size_t begin, size;
        Token id;
    };
    struct Range {
        size_t begin, end;  // bytes
    };
    // The leftmost, there longest, match at or after `from`. Control tokens only where they lie within one of
    // the `trusted` ranges, which are sorted and do not touch.
    std::optional<Match> find(std::string_view text, size_t from, std::span<const Range> trusted) const;

  private:
    struct Node {
        int32_t child = -1, sibling = -1;
        Token id = -1;  // of the token that ends here
        unsigned char byte = 0;
        bool control = false;
    };
    int32_t find_child(int32_t node, unsigned char byte) const;

    std::array<int32_t, 256> roots_;  // by first byte
    std::vector<Node> nodes_;
    bool any_user_defined_ = false;
};

}  // namespace nibble
