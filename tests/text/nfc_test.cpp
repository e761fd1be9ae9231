// NFC against the Unicode database of Python (make_nfc.py), invalid bytes, and the tokenizers that ask for
// it. is_nfc must never call a text composed that to_nfc would change.
#include "src/text/nfc.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "src/text/tokenizer.h"
#include "src/text/utf8.h"

using namespace nibble;

namespace {

std::string from_hex(const std::string& hex) {
    std::string s;
    for (size_t i = 0; i < hex.size(); i += 2)
        s += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return s;
}

}  // namespace

TEST_CASE("NFC equals the reference") {
    const auto json = nlohmann::json::parse(
        *read_text_file(std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/text/nfc.json"));
    REQUIRE(json.size() > 1500);
    size_t changed = 0;
    for (const auto& row : json) {
        const std::string text = from_hex(row[0]), expected = from_hex(row[1]);
        CAPTURE(row[0].get<std::string>());
        CHECK(to_nfc(text) == expected);
        CHECK(to_nfc(expected) == expected);
        if (text != expected) CHECK(!is_nfc(text));
        changed += text != expected;
    }
    CHECK(changed > 1500);
}

TEST_CASE("what NFC does not change is seen at once, and bytes that are no UTF-8 stay") {
    for (const std::string text :
         {"", "plain", "caf\u00e9 \u4e2d\u6587 \U0001F600 \u0416", "\xff\xc3", "\xe2\x82"}) {
        CHECK(is_nfc(text));
        CHECK(to_nfc(text) == text);
    }
    CHECK(!is_nfc("e\u0301"));
    CHECK(to_nfc("e\u0301\xff\u0301") == "\u00e9\xff\u0301");
    CHECK(to_nfc("\xcc"
                 "e\u0301") == "\xcc\u00e9");
}

TEST_CASE("a tokenizer that asks for NFC composes text, another does not") {
    Vocab v;
    for (const std::string& c : byte_alphabet()) v.tokens.push_back(c);
    v.pre = "gpt-2";
    const auto length = [&] { return Tokenizer::create(v)->encode("e\u0301").size(); };
    CHECK(length() == 3);
    v.nfc = true;
    CHECK(length() == 2);
}
