// Shared by the tokenizer tests: open a model's tokenizer, read JSON, build small vocabularies by hand.
// Failures to open are test failures with the error's text.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "src/model/vocab_file.h"
#include "src/text/tokenizer.h"
#include "src/text/utf8.h"

namespace nibble::text_test {

inline const std::filesystem::path root = NIBBLE_SOURCE_DIR;
inline constexpr EncodeOptions plain{false, false};
inline constexpr EncodeOptions special{true, false};

inline Tokenizer must_create(Vocab vocab) {
    auto tokenizer = Tokenizer::create(std::move(vocab));
    REQUIRE_MESSAGE(tokenizer, (tokenizer ? "" : tokenizer.error().message()));
    return std::move(*tokenizer);
}

inline Tokenizer open_tokenizer(const std::filesystem::path& path) {
    auto file = TensorFile::open(path);
    REQUIRE_MESSAGE(file, (file ? "" : file.error().message()));
    auto vocab = read_vocab(*file);
    REQUIRE_MESSAGE(vocab, (vocab ? "" : vocab.error().message()));
    return must_create(std::move(*vocab));
}

inline std::string text_file(const std::filesystem::path& path) {
    auto text = read_text_file(path);
    REQUIRE_MESSAGE(text, (text ? "" : text.error().message()));
    return std::move(*text);
}

inline nlohmann::json json_file(const std::filesystem::path& path) {
    return nlohmann::json::parse(text_file(path));
}

// A byte-level vocabulary of the 256 bytes (ids 0 to 255 in byte order), without merges.
inline Vocab byte_vocab() {
    Vocab v;
    v.pre = "gpt-2";
    for (const std::string& c : byte_alphabet()) v.tokens.push_back(c);
    return v;
}

inline Token add(Vocab& v, std::string token, TokenType type = TokenType::normal, float score = 0) {
    const auto id = static_cast<Token>(v.tokens.size());
    v.types.resize(v.tokens.size(), static_cast<uint8_t>(TokenType::normal));
    v.tokens.push_back(std::move(token));
    v.types.push_back(static_cast<uint8_t>(type));
    if (v.model == Vocab::Model::spm) v.scores.push_back(score);
    return id;
}

// A SentencePiece vocabulary: <unk>, then the 256 byte tokens (ids 1 to 256).
inline Vocab spm_vocab() {
    Vocab v;
    v.model = Vocab::Model::spm;
    v.add_space_prefix = true;
    v.unk = add(v, "<unk>", TokenType::unknown);
    constexpr std::string_view hex = "0123456789ABCDEF";
    for (size_t b = 0; b < 256; ++b) add(v, cat("<0x", hex[b / 16], hex[b % 16], ">"), TokenType::byte);
    return v;
}

inline std::string error_of(Vocab vocab) {
    const auto t = Tokenizer::create(std::move(vocab));
    return t ? std::string() : t.error().message();
}

inline bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace nibble::text_test
