// The bundled tokenizer against ids made with the Hugging Face tokenizers package
// (tests/data/fairytale_ids.json). That package always parses special tokens; everything else is compared in
// both modes.
#include <cstdint>

#include "tests/text/common.h"

using namespace nibble;
using namespace nibble::text_test;

namespace {

// FNV-1a, 64 bits, over the ids as little-endian u32.
uint64_t hash(const std::vector<Token>& ids) {
    uint64_t h = 0xcbf29ce484222325u;
    for (const Token id : ids)
        for (int shift = 0; shift < 32; shift += 8)
            h = (h ^ (static_cast<uint32_t>(id) >> shift & 0xFF)) * 0x100000001b3u;
    return h;
}

std::string hex(uint64_t v) {
    std::string s;
    for (int shift = 60; shift >= 0; shift -= 4) s += "0123456789abcdef"[v >> shift & 15];
    return s;
}

}  // namespace

TEST_CASE("all of alice.txt and the awkward strings have the ids of the reference") {
    const auto reference = json_file(root / "tests/data/fairytale_ids.json");
    const Tokenizer tokenizer = open_tokenizer(root / "models/fairytale");
    const std::string alice = text_file(root / "tests/data/alice.txt");
    const auto ids = tokenizer.encode(alice, plain);
    CHECK(ids.size() == reference["alice"]["count"].get<size_t>());
    CHECK(hex(hash(ids)) == reference["alice"]["fnv1a64"].get<std::string>());
    CHECK(tokenizer.decode(ids) == alice);
    CHECK(reference["cases"].size() >= 40);
    for (const auto& c : reference["cases"]) {
        INFO(c.dump());
        const auto text = c["text"].get<std::string>();
        const auto special_ids = tokenizer.encode(text, special);
        CHECK(special_ids == c["ids"].get<std::vector<Token>>());
        CHECK(tokenizer.decode(special_ids) == text);
        CHECK(tokenizer.decode(tokenizer.encode(text, plain)) == text);
    }
}
