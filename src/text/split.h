// Splitter: cuts text into the words that byte-level BPE merges within, by one or more regex passes.
// Each pass isolates its matches inside the pieces of the pass before, as Hugging Face tokenizers do.
#pragma once

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
    // Compiles (with JIT) once. An Error carries PCRE2's message and the place in the regex.
    static Result<Splitter> create(std::span<const std::string> regexes);

    // Pieces in order, covering the text; may be called from several threads. Invalid UTF-8 is never part of
    // a match and becomes pieces of its own. Where a regex exceeds its limits (a hostile one), the text is
    // cut at fixed lengths instead: time stays bounded and no byte is lost.
    std::vector<std::string_view> split(std::string_view text) const;

  private:
    class Run;
    struct Pass;
    std::vector<std::shared_ptr<const Pass>> passes_;
};

}  // namespace nibble
