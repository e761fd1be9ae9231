// A Vocab from the JSON files of a Hugging Face folder (tokenizers library, "BPE" models).
// What cannot be represented exactly is refused by name: a tokenizer that is nearly right gives wrong text.
#pragma once

#include <string>

#include "ggml/base/result.h"
#include "src/text/vocab.h"

namespace nibble {

// Contents, not names; all but the first may be empty.
struct HfFiles {
    std::string tokenizer, tokenizer_config, generation_config, config;
};

// Byte-level BPE and BPE with byte fallback. Gaps between ids become unused tokens. `where` opens error
// messages, usually the path of tokenizer.json.
Result<Vocab> vocab_from_hf(const HfFiles& files, const std::string& where);

}  // namespace nibble
