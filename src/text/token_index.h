// The tokens of a vocabulary by their text.
// Open addressing, half full at most, with a part of each hash beside the token: a vocabulary with its merges
// is looked up half a million times before the first prompt.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/vocab.h"

namespace nibble {

class TokenIndex {
  public:
    TokenIndex() = default;
    // Of none of these texts yet, which must stay where they are.
    explicit TokenIndex(std::span<const std::string> texts)
        : texts_(texts.data()), slots_(std::bit_ceil(2 * texts.size() + 1)) {}

    // Of all of them; of equal ones the first counts.
    static TokenIndex of_first(std::span<const std::string> texts) {
        TokenIndex index(texts);
        for (size_t t = 0; t < texts.size(); ++t) index.add(static_cast<Token>(t));
        return index;
    }

    // The token that stands for the text of token t: t itself, unless one of equal text was there before.
    Token& add(Token t) {
        const size_t h = hash(texts_[t]);
        Slot& s = slots_[slot(texts_[t], h)];
        if (s.id < 0) s = {tag(h), t};
        return s.id;
    }
    // -1: none has this text.
    Token find(std::string_view text) const {
        return slots_.empty() ? -1 : slots_[slot(text, hash(text))].id;
    }

  private:
    struct Slot {
        uint32_t tag = 0;
        Token id = -1;
    };
    static size_t hash(std::string_view text) { return std::hash<std::string_view>()(text); }
    static uint32_t tag(size_t hash) { return static_cast<uint32_t>(uint64_t{hash} >> 32); }
    size_t slot(std::string_view text, size_t h) const {
        size_t i = h & (slots_.size() - 1);
        while (slots_[i].id >= 0 && (slots_[i].tag != tag(h) || texts_[slots_[i].id] != text))
            i = (i + 1) & (slots_.size() - 1);
        return i;
    }

    const std::string* texts_ = nullptr;
    std::vector<Slot> slots_;
};

}  // namespace nibble
