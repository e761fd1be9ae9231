// The scores of a SentencePiece vocabulary whose source states merges instead: tokenizer.json, and GGUF files
// of Gemma 4.
#pragma once

#include <string>
#include <unordered_map>

#include "ggml/base/result.h"
#include "src/text/vocab.h"

namespace nibble {

using TokenIds = std::unordered_map<std::string_view, Token>;  // of equal tokens the first
TokenIds token_ids(const Vocab& vocab);                        // views into vocab.tokens

// Turns vocab.merges into vocab.scores: the token that the best merge makes goes first. An Error, naming no
// file, where a merge makes no token.
Result<void> score_by_merges(Vocab& vocab, const TokenIds& ids);

}  // namespace nibble
