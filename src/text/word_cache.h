// WordCache: the tokens of short words within one call of encode(). Direct-mapped: a new word evicts the old.
// Lives on the caller's side of the tokenizer, which stays immutable and needs no lock.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "src/text/vocab.h"

namespace nibble {

class WordCache {
  public:
    // Sized for a text of this many bytes; at most 512 KiB.
    explicit WordCache(size_t text_size)
        : entries_(std::bit_ceil(std::clamp<size_t>(text_size / 16, 8, max_entries))) {}

    // Appends the tokens of the word to `out`, calling encode(word, out) unless they are remembered.
    template <class Encode>
    void append(std::string_view word, std::vector<Token>& out, const Encode& encode) {
        if (word.size() > max_word) return encode(word, out);
        Entry& e = entries_[std::hash<std::string_view>{}(word) & (entries_.size() - 1)];
        if (e.n_ids == 0 || std::string_view(e.word.data(), e.size) != word) {
            const size_t before = out.size();
            encode(word, out);
            const size_t n = out.size() - before;
            if (n > max_ids) return;
            e.size = static_cast<uint8_t>(word.size());
            e.n_ids = static_cast<uint8_t>(n);
            std::memcpy(e.word.data(), word.data(), word.size());
            std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(before), n, e.ids.begin());
            return;
        }
        out.insert(out.end(), e.ids.begin(), e.ids.begin() + e.n_ids);
    }

  private:
    static constexpr size_t max_word = 30, max_ids = 8, max_entries = 8192;
    struct Entry {
        uint8_t size = 0, n_ids = 0;  // n_ids 0: vacant
        std::array<char, max_word> word;
        std::array<Token, max_ids> ids;
    };
    std::vector<Entry> entries_;
};

}  // namespace nibble
