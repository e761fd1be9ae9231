// TokenizerJson: a tokenizer.json, its tokens and merges as lists and all the rest as a document.
// In a document they are half a million small allocations, which cost more than everything else of a file.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "ggml/base/result.h"

namespace nibble {

struct TokenizerJson {
    nlohmann::json root;  // "model.vocab" and "model.merges" are empty in it, of the kind that they were
    std::vector<std::pair<std::string, uint64_t>> ids;  // in the order of the file; a token may come twice
    std::vector<std::string> merges;  // "left right", in whichever of the two spellings the file has them
    std::string wrong;                // what of the two lists is no id or no pair, in words; empty if all are
};

// Fails for what is not JSON or nests deeper than `levels`. `where` opens error messages.
Result<TokenizerJson> parse_tokenizer_json(std::string_view text, const std::string& where, int levels);

}  // namespace nibble
