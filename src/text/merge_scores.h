// The scores of a SentencePiece vocabulary whose source states merges instead: tokenizer.json, and GGUF files
// of Gemma 4.
#pragma once

#include "ggml/base/result.h"
#include "src/text/token_index.h"

namespace nibble {

// Turns vocab.merges into vocab.scores: the token that the best merge makes goes first. An Error, naming no
// file, where a merge makes no token.
Result<void> score_by_merges(Vocab& vocab, const TokenIndex& ids);

}  // namespace nibble
