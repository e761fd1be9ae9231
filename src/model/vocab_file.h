// The tokenizer of a model file: GGUF keys or the JSON files of a Hugging Face folder, as a Vocab; and back.
// Keys and their meaning are documented at the fields of Vocab.
#pragma once

#include "ggml/file/tensor_file.h"
#include "src/text/tokenizer.h"

namespace nibble {

Result<Vocab> read_vocab(const TensorFile& file);
Result<Tokenizer> read_tokenizer(const TensorFile& file);
// Of what read_vocab() gave. Errors name the file.
Result<Tokenizer> make_tokenizer(Vocab vocab, const std::filesystem::path& file);

// Refuses a tokenizer of more tokens than the embedding has rows.
Result<void> check_vocab_size(size_t n_tokens, int64_t n_rows, const std::filesystem::path& path);

// Sets tokenizer.ggml.* and tokenizer.chat_template.
void write_vocab(const Vocab& vocab, Metadata& out);

}  // namespace nibble
