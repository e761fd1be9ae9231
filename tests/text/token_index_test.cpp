// TokenIndex against a map: every text is found, of equal ones the first, and others are not.
#include "src/text/token_index.h"

#include <map>
#include <random>

#include <doctest/doctest.h>

using namespace nibble;

TEST_CASE("tokens by their text, against a map") {
    std::mt19937 random(7);
    for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{1000}, size_t{20000}}) {
        std::vector<std::string> texts(n);
        for (std::string& text : texts) {
            text.resize(random() % 5);
            for (char& c : text) c = static_cast<char>(random() % 8);  // many are equal, some are empty
        }
        std::map<std::string, Token> expected;
        for (size_t t = 0; t < n; ++t) expected.emplace(texts[t], static_cast<Token>(t));
        const TokenIndex index = TokenIndex::of_first(texts);
        size_t wrong = 0;
        for (const auto& [text, token] : expected) wrong += index.find(text) != token;
        for (int i = 0; i < 2000; ++i) {
            std::string text(random() % 6, '\0');
            for (char& c : text) c = static_cast<char>(random() % 9);
            const auto known = expected.find(text);
            wrong += index.find(text) != (known == expected.end() ? -1 : known->second);
        }
        CHECK(wrong == 0);
    }
    CHECK(TokenIndex().find("a") == -1);
}

TEST_CASE("another token of the same text can take its place") {
    const std::vector<std::string> texts{"a", "b", "a"};
    TokenIndex index(texts);
    CHECK(index.add(0) == 0);
    CHECK(index.add(1) == 1);
    Token& known = index.add(2);
    CHECK(known == 0);
    known = 2;
    CHECK(index.find("a") == 2);
    CHECK(index.find("b") == 1);
}
