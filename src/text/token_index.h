// The tokens of a vocabulary by their text.
// Open addressing, half full at most, with a part of each hash beside the token: a vocabulary with its merges
// is looked up half a million times before the first prompt.
#pragma once

#include <algorithm>
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
    static constexpr size_t batch = 32;  // texts whose places are asked for before the first is looked at

    TokenIndex() = default;
    // Of all of these texts, which must stay where they are. Of equal ones the first counts, unless
    // goes_before(later, earlier).
    template <class GoesBefore>
    TokenIndex(std::span<const std::string> texts, const GoesBefore& goes_before)
        : texts_(texts.data()), slots_(std::bit_ceil(2 * texts.size() + 1)) {
        size_t hashes[batch];
        for (size_t first = 0; first < texts.size(); first += batch) {
            const auto some = texts.subspan(first, std::min(batch, texts.size() - first));
            ask_for(some, hashes);
            for (size_t i = 0; i < some.size(); ++i) {
                const auto t = static_cast<Token>(first + i);
                Slot& s = slots_[slot(some[i], hashes[i])];
                if (s.id < 0)
                    s = {tag(hashes[i]), t};
                else if (goes_before(t, s.id))
                    s.id = t;
            }
        }
    }
    static TokenIndex of_first(std::span<const std::string> texts) {
        return {texts, [](Token, Token) { return false; }};
    }

    // -1: none has this text.
    Token find(std::string_view text) const {
        return slots_.empty() ? -1 : slots_[slot(text, hash(text))].id;
    }
    // The same of at most `batch` texts, into as many tokens.
    void find(std::span<const std::string_view> texts, Token* tokens) const {
        if (slots_.empty()) return (void)std::fill_n(tokens, texts.size(), -1);
        size_t hashes[batch];
        ask_for(texts, hashes);
        for (size_t i = 0; i < texts.size(); ++i)
            if (const Token t = slots_[place(hashes[i])].id; t >= 0) __builtin_prefetch(&texts_[t]);
        for (size_t i = 0; i < texts.size(); ++i) tokens[i] = slots_[slot(texts[i], hashes[i])].id;
    }

  private:
    struct Slot {
        uint32_t tag = 0;
        Token id = -1;
    };
    static size_t hash(std::string_view text) { return std::hash<std::string_view>()(text); }
    static uint32_t tag(size_t hash) { return static_cast<uint32_t>(uint64_t{hash} >> 32); }
    size_t place(size_t hash) const { return hash & (slots_.size() - 1); }
    size_t slot(std::string_view text, size_t h) const {
        size_t i = place(h);
        while (slots_[i].id >= 0 && (slots_[i].tag != tag(h) || texts_[slots_[i].id] != text))
            i = place(i + 1);
        return i;
    }
    template <class Text>
    void ask_for(std::span<Text> texts, size_t* hashes) const {
        for (const Text& text : texts) {
            *hashes = hash(text);
            __builtin_prefetch(&slots_[place(*hashes++)]);
        }
    }

    const std::string* texts_ = nullptr;
    std::vector<Slot> slots_;
};

}  // namespace nibble
