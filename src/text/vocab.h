// Vocab: everything a tokenizer needs, as plain data. Each field names its GGUF key (tokenizer.ggml.…).
// Filled from GGUF metadata (src/model/vocab_file.h) or from a Hugging Face folder (hf_vocab.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nibble {

using Token = int32_t;

enum class TokenType : uint8_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6
};

struct Vocab {
    enum class Model : uint8_t {
        bpe,  // "gpt2": byte-level BPE with ranked merges
        spm,  // "llama": SentencePiece BPE with scores and byte fallback
    };
    Model model = Model::bpe;                // model
    std::string pre;                         // pre: the kind of split regex, see split.h
    std::vector<std::string> split_regexes;  // explicit passes from a tokenizer.json; override `pre`
    std::vector<std::string> tokens;  // tokens: bpe in the byte-level alphabet, spm with U+2581 for a space
    std::vector<float> scores;        // scores: spm; the pair that merges into the highest score goes first
    std::vector<uint8_t> types;       // token_type: TokenType; all normal when absent
    std::vector<std::string> merges;  // merges: bpe, "left right", best first
    std::optional<Token> bos, eos, eot, eom, unk, pad;  // …_token_id
    std::vector<Token> end_of_generation;               // every token that ends an answer; eos_token_ids
    bool add_bos = false;                               // add_bos_token
    bool add_eos = false;                               // add_eos_token
    bool add_space_prefix = false;                      // add_space_prefix: spm
    bool prefix_first_only = false;  // no key: the space goes before the text, not after special tokens
    std::vector<Token> strip_left, strip_right;  // no key: special tokens that swallow the white space beside
    bool ignore_merges = false;                  // a word that is a token is taken whole, before any merge
    bool nfc = false;                            // no key: text is composed first (nfc.h)
    bool remove_extra_whitespaces = false;       // remove_extra_whitespaces
    std::optional<std::string> chat_template;    // tokenizer.chat_template
};

}  // namespace nibble
