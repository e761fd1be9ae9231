// Constraints over real vocabularies: masks equal checking every token, positions across token borders,
// bounded memory, and what is refused up front.
#include "src/text/grammar/constraint.h"

#include <chrono>
#include <map>
#include <set>

#include "ggml/base/cat.h"
#include "src/model/vocab_file.h"
#include "src/text/grammar/stacks.h"
#include "tests/grammar/support.h"

using namespace nibble;
using namespace nibble::grammar_test;

namespace {

const std::filesystem::path data = std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/data/tokenizers";

struct Vocabulary {
    explicit Vocabulary(const char* name)
        : tokenizer(open(data / name)), trie(TokenTrie::create(tokenizer)) {}
    static Tokenizer open(const std::filesystem::path& path) {
        auto file = TensorFile::open(path);
        REQUIRE(file);
        auto vocab = read_vocab(*file);
        REQUIRE(vocab);
        auto t = Tokenizer::create(std::move(*vocab));
        REQUIRE(t);
        return std::move(*t);
    }
    std::shared_ptr<Constraint> constraint(Result<Grammar> g) const {
        auto c = Constraint::create(must(std::move(g)), trie);
        REQUIRE_MESSAGE(c, (c ? "" : c.error().message()));
        return *c;
    }
    Tokenizer tokenizer;
    std::shared_ptr<const TokenTrie> trie;
};

bool has(const TokenMask& mask, Token t) {
    return mask[static_cast<size_t>(t) / 64] >> (static_cast<size_t>(t) % 64) & 1;
}

const std::vector<std::string> schemas = {
    "true",
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,"maximum":130},"tags":{"type":"array","items":{"enum":["red","green","blue"]}}},"required":["name","age"]})",
    R"({"type":"string","format":"date-time"})",
};

}  // namespace

TEST_CASE("many stacks are merged as pairs would be, and leave one set behind") {
    Stacks stacks;
    std::vector<StackId> sets;
    for (int32_t state = 0; state < 400; ++state)
        sets.push_back(stacks.push(state % 300, stacks.push(state / 3 + 1000, Stacks::empty_stack)));
    const size_t before = stacks.bytes();
    const StackId all = stacks.merge(sets);
    CHECK(stacks.entries(all).size() == 300);
    CHECK(stacks.bytes() < before + 100'000);
    StackId pairs = sets[0];
    for (const StackId s : sets) pairs = stacks.merge({s, pairs});
    CHECK(pairs == all);
    CHECK(stacks.merge({all}) == all);
}

TEST_CASE("a mask is what checking every token gives, and a walk by tokens stays in the language") {
    std::mt19937 random(2);
    for (const char* name : {"gpt-2.gguf", "phi-3.gguf"}) {
        const Vocabulary v(name);
        for (const std::string& schema : schemas) {
            INFO(name << " " << schema);
            const auto c = v.constraint(Grammar::from_json_schema(schema));
            Recognizer r(Grammar::from_json_schema(schema));
            Matcher m(c);
            std::string text;
            for (int step = 0; step < 40; ++step) {
                const auto mask = m.mask();
                std::vector<Token> allowed;
                for (size_t i = 0; i < v.tokenizer.n_vocab(); ++i) {
                    const auto t = static_cast<Token>(i);
                    if (has(*mask, t)) allowed.push_back(t);
                    if (has(*mask, t) != m.allows(t)) FAIL("token " << t << " after " << text);
                    if (step > 3 || v.tokenizer.is_control(t) || v.tokenizer.is_end_of_generation(t))
                        continue;
                    const std::string& piece = v.tokenizer.piece(t);
                    if (has(*mask, t) != (!piece.empty() && r.begins(text + piece)))
                        FAIL("token " << t << " after " << text);
                }
                REQUIRE(!allowed.empty());
                const Token t = allowed[random() % allowed.size()];
                REQUIRE(m.accept(t));
                if (v.tokenizer.is_end_of_generation(t)) {
                    CHECK(r.accepts(text));
                    CHECK(!m.may_continue());
                    CHECK(!m.allows(t));
                    break;
                }
                text += v.tokenizer.piece(t);
                REQUIRE(r.begins(text));
            }
        }
    }
}

TEST_CASE("tokens that hold half a character") {
    const Vocabulary v("gpt-2.gguf");
    const auto c = v.constraint(Grammar::from_gbnf("root ::= [\xE2\x82\xAC\xE2\x82\xAD] \"x\""));
    const auto one = [&](std::string_view bytes) {
        for (size_t i = 0; i < v.tokenizer.n_vocab(); ++i)
            if (v.tokenizer.piece(static_cast<Token>(i)) == bytes) return static_cast<Token>(i);
        return Token{-1};
    };
    Matcher m(c);
    CHECK(!m.allows(one("x")));
    REQUIRE(m.accept(one("\xE2")));
    CHECK(!m.allows(one("\xE2")));
    Matcher fork = m;
    REQUIRE(m.accept(one("\x82")));
    CHECK(!m.accept(one("\xAE")));
    REQUIRE(m.accept(one("\xAD")));
    CHECK(!m.may_end());
    REQUIRE(m.accept(one("x")));
    CHECK(m.may_end());
    CHECK(!m.may_continue());
    CHECK(!fork.may_end());  // a copy goes its own way
    CHECK(fork.allows(one("\x82")));
    CHECK(!fork.allows(-1));
    CHECK(!fork.allows(static_cast<Token>(v.tokenizer.n_vocab())));
}

TEST_CASE("masks are shared, memory is bounded") {
    const Vocabulary v("gpt-2.gguf");
    const auto c = v.constraint(Grammar::from_json_schema(R"({"type":"array","items":{"type":"integer"}})"));
    Matcher a(c), b(c);
    const auto first = a.mask();
    CHECK(b.mask() == first);
    CHECK(c->counters().masks_made == 1);
    // A language that remembers every letter: each token leads to a state of its own.
    std::string rules = "root ::= ";
    for (char x = 'a'; x <= 'z'; ++x) rules += cat(x == 'a' ? "" : " | ", "\"", x, "\" root \"", x, "\"");
    const auto palindromes = v.constraint(Grammar::from_gbnf(cat(rules, " | \"-\"")));
    Matcher m(palindromes);
    std::mt19937 random(4);
    for (int i = 0; i < 12; ++i) {
        const auto mask = m.mask();
        Token t = 0;
        do t = static_cast<Token>(random() % v.tokenizer.n_vocab());
        while (!has(*mask, t) || v.tokenizer.piece(t).find('-') != std::string::npos);
        REQUIRE(m.accept(t));
        CHECK(palindromes->bytes() < size_t{200} << 20);
    }
    CHECK(m.may_continue());
}

TEST_CASE("what cannot be met is refused up front") {
    const Vocabulary v("phi-3.gguf");
    Vocab few;
    few.pre = "gpt-2";
    few.tokens = {"a", "b"};
    auto tokenizer = Tokenizer::create(few);
    REQUIRE(tokenizer);
    const auto trie = TokenTrie::create(*tokenizer);
    const auto refused = [&](const char* grammar) {
        const auto c = Constraint::create(must(Grammar::from_gbnf(grammar)), trie);
        return c ? std::string() : c.error().message();
    };
    CHECK(refused("root ::= \"a\" [b-z]").empty());
    CHECK(refused("root ::= \"c\"").find("no token of this vocabulary") != std::string::npos);
    CHECK(refused("root ::= \"\"").find("no token that ends") != std::string::npos);
    std::string chain = "root ::= r0 \"b\"\n";
    for (int i = 0; i < 3000; ++i) chain += cat("r", i, " ::= r", i + 1, " \"b\"\n");
    chain += "r3000 ::= \"a\"\n";
    CHECK(refused(chain.c_str()).find("rules deep") != std::string::npos);
}

TEST_CASE("cost with a vocabulary of 150,000 tokens") {
    // GPT-2's tokens and pairs of them; a document in the longest tokens that fit.
    const Vocabulary small("gpt-2.gguf");
    Vocab v;
    v.pre = "gpt-2";
    v.tokens = small.tokenizer.vocab().tokens;
    std::set<std::string> known(v.tokens.begin(), v.tokens.end());
    for (size_t i = 0; v.tokens.size() < 150'000; ++i) {
        std::string pair = cat(v.tokens[i * 7919 % 50'000], v.tokens[(i * 104'729 + i / 50'000) % 50'000]);
        if (pair.size() < 24 && known.insert(pair).second) v.tokens.push_back(std::move(pair));
    }
    auto tokenizer = Tokenizer::create(std::move(v));
    REQUIRE(tokenizer);
    using Clock = std::chrono::steady_clock;
    const auto microseconds = [](Clock::duration d) {
        return std::chrono::duration<double, std::micro>(d).count();
    };
    Clock::time_point begin = Clock::now();
    const auto trie = TokenTrie::create(*tokenizer);
    const double trie_us = microseconds(Clock::now() - begin);
    std::map<std::string, Token, std::less<>> by_text;
    for (size_t i = 0; i < trie->n_vocab(); ++i) by_text.emplace(trie->piece(static_cast<Token>(i)), i);
    std::string text = "{\"name\": \"";
    for (int i = 0; i < 20; ++i) text += "The old king of the mountain, ";
    text += "\", \"age\": 87, \"tags\": [\"red\"";
    for (int i = 0; i < 50; ++i) text += ", \"green\", \"blue\"";
    text += "]}";
    begin = Clock::now();
    const auto grammar = must(Grammar::from_json_schema(
        R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":130},"tags":{"type":"array","items":{"enum":["red","green","blue"]}}},"required":["name","age"]})"));
    const double compile_us = microseconds(Clock::now() - begin);
    auto c = Constraint::create(grammar, trie);
    REQUIRE(c);
    // First all tokens as sampled, then the same with a mask at each of them.
    double check_us = 0, mask_us = 0;
    size_t n = 0;
    for (const bool masks : {false, true}) {
        Matcher m(*c);
        begin = Clock::now();
        n = 0;
        for (size_t at = 0; at < text.size(); ++n) {
            size_t length = std::min<size_t>(24, text.size() - at);
            auto token = by_text.end();
            while ((token = by_text.find(std::string_view(text).substr(at, length))) == by_text.end())
                --length;
            if (masks) REQUIRE(has(*m.mask(), token->second));
            REQUIRE(m.allows(token->second));
            REQUIRE(m.accept(token->second));
            at += length;
        }
        CHECK(m.may_end());
        (masks ? mask_us : check_us) = microseconds(Clock::now() - begin);
    }
    const auto made = static_cast<double>((*c)->counters().masks_made);
    MESSAGE("compile ", compile_us, " us, tree of tokens ", trie_us, " us; ", n, " tokens: check ",
            check_us / static_cast<double>(n), " us each; ", made, " masks made, ", mask_us / made,
            " us per new mask");
    CHECK(check_us / static_cast<double>(n) < 1000);
    CHECK(made < 60);
}
