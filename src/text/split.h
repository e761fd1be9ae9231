// Splitter: cuts text into the words that byte-level BPE merges within, by one or more regex passes.
// Each pass isolates its matches inside the pieces of the pass before, as Hugging Face tokenizers do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"

namespace nibble {

// The passes of a GGUF `tokenizer.ggml.pre` kind; an Error names an unknown one.
Result<std::vector<std::string>> split_regexes(std::string_view pre);

class Splitter {
  public:
    // Steps of backtracking that one text may cost in all its matches, in proportion to its length: seconds
    // at most, and far more than a tokenizer's regexes need.
    class Budget {
      public:
        explicit Budget(size_t text_size) : left_((size_t{1} << 24) + 1024 * text_size) {}
        static Budget of_steps(size_t steps) {
            Budget b(0);
            b.left_ = steps;
            return b;
        }
        void spend(size_t steps) { left_ -= std::min(left_, steps); }
        size_t left() const { return left_; }
        bool spent() const { return left_ == 0; }

      private:
        size_t left_;
    };

    // Compiles (with JIT) once. An Error carries PCRE2's message and the place in the regex, or names the
    // regex that takes too many steps for a sample text; there are at most 16.
    static Result<Splitter> create(std::span<const std::string> regexes);

    // Pieces in order, covering the text; may be called from several threads. Invalid UTF-8 is never part of
    // a match and becomes pieces of its own. Where a regex exceeds its limits (a hostile one), the text is
    // cut at fixed lengths instead, and so is all that follows once the budget is spent: time stays bounded
    // and no byte is lost. Parts of one text share a budget.
    std::vector<std::string_view> split(std::string_view text) const;
    std::vector<std::string_view> split(std::string_view text, Budget& budget) const;

  private:
    class Run;
    struct Pass;
    std::vector<std::shared_ptr<const Pass>> passes_;
};

}  // namespace nibble
