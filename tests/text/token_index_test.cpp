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
    const std::vector<std::string> texts{"a", "b", "a", "a", "b"};
    const TokenIndex index(texts, [](Token later, Token known) { return later == 2 || known == 1; });
    CHECK(index.find("a") == 2);
    CHECK(index.find("b") == 4);
}

TEST_CASE("several texts at once are found as one by one") {
    std::vector<std::string> texts;
    for (int t = 0; t < 500; ++t) texts.push_back(std::string(static_cast<size_t>(t % 40), 'x') + "y");
    const TokenIndex index = TokenIndex::of_first(texts);
    std::vector<std::string_view> asked(texts.begin(), texts.begin() + 31);
    asked.push_back("nowhere");
    for (const size_t n : {size_t{0}, size_t{1}, TokenIndex::batch}) {
        std::vector<Token> found(n, -2);
        index.find(std::span(asked).first(n), found.data());
        for (size_t i = 0; i < n; ++i) CHECK(found[i] == index.find(asked[i]));
    }
    Token none = 0;
    TokenIndex().find(std::span(asked).first(1), &none);
    CHECK(none == -1);
}
