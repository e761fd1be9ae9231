// The split regexes by kind on strings that tell them apart, and regexes that must not do harm.
// Expected pieces follow from the regexes by hand; '|' stands between pieces.
#include "src/text/split.h"

#include "tests/text/common.h"

using namespace nibble;
using namespace nibble::text_test;

namespace {

Splitter splitter(std::vector<std::string> regexes) {
    auto s = Splitter::create(regexes);
    REQUIRE_MESSAGE(s, (s ? "" : s.error().message()));
    return std::move(*s);
}

std::string joined(const Splitter& s, std::string_view text) {
    std::string out;
    for (const std::string_view piece : s.split(text)) out += cat(out.empty() ? "" : "|", piece);
    return out;
}

std::string pieces(std::string_view pre, std::string_view text) {
    auto regexes = split_regexes(pre);
    REQUIRE(regexes);
    return joined(splitter(std::move(*regexes)), text);
}

std::string create_error(const std::string& regex) {
    const auto s = Splitter::create(std::vector<std::string>{regex});
    return s ? std::string() : s.error().message();
}

}  // namespace

TEST_CASE("kinds of splits differ where they should") {
    CHECK(pieces("gpt-2", "It's 12345  x\n\ny'LL") == "It|'s| 12345| | x|\n|\n|y|'|LL");
    CHECK(pieces("llama-bpe", "It's 12345  x\n\ny'LL(z)") == "It|'s| |123|45| | x|\n\n|y|'LL|(z|)");
    CHECK(pieces("qwen2", "a123 b") == "a|1|2|3| b");
    CHECK(pieces("smollm", "a12 b") == "a|1|2| b");
    CHECK(pieces("smollm", "a 1") == "a| |1");
    CHECK(pieces("gpt-2", "a 1") == "a| 1");
    CHECK(pieces("deepseek-coder", "a12\n b!\xE4\xBD\xA0") == "a|1|2|\n| b|!|\xE4\xBD\xA0");
    CHECK(pieces("deepseek-llm", "a12\n b!") == "a|12|\n| b|!");
    CHECK(pieces("hunyuan-dense", "a1234 b!\xE4\xBD\xA0z") == "a|123|4| b|!|\xE4\xBD\xA0|z");
    CHECK(pieces("minimax-m2", "camelCase 1234 it's") == "camel|Case| |123|4| it's");
    CHECK(pieces("tekken", "camelCase HTTPServer 12 it's") == "camel|Case| HTTPServer| |1|2| it|'s");
    CHECK(pieces("gpt-4o", "camelCase 1234 it's //\n") == "camel|Case| |123|4| it's| //\n");
}

TEST_CASE("white space is what Unicode says: U+180E is none, U+0085 and U+3000 are") {
    CHECK(pieces("gpt-2", "a \xE1\xA0\x8E") == "a| \xE1\xA0\x8E");
    CHECK(pieces("gpt-2", "a\xC2\x85\xE3\x80\x80") == "a|\xC2\x85\xE3\x80\x80");
}

TEST_CASE("invalid UTF-8 stands alone") {
    CHECK(pieces("gpt-2",
                 "ab\xFF\xFE"
                 "cd") == "ab|\xFF\xFE|cd");
    CHECK(pieces("deepseek-coder", "ab\xE4\xBD") == "ab|\xE4\xBD");
}

TEST_CASE("hostile and foreign regexes") {
    CHECK(contains(create_error("(a"), "parenthes"));
    CHECK(contains(create_error("[a[b]]"), "nested character class"));
    CHECK(contains(create_error("[a&&b]"), "nested character class"));
    CHECK(contains(create_error("\\C"), "\\C"));
    CHECK(create_error("[\\[\\]]").empty());
    CHECK(joined(splitter({""}), "a\xC3\xA9z") == "a\xC3\xA9z");
    CHECK(joined(splitter({"x*"}), "ab\xC3\xA9xxz") == "ab\xC3\xA9|xx|z");
    CHECK(joined(splitter({"a\\Kb|(?=b)"}), "zabab") == "za|b|a|b");
    CHECK(joined(splitter({}), "a b") == "a b");

    CHECK(!split_regexes("no-such-kind"));
    CHECK(contains(split_regexes("no-such-kind").error().message(), "no-such-kind"));
}

TEST_CASE("regexes that backtrack without end: refused at load, or cut off by the budget of a text") {
    for (const char* regex : {R"((?:.|.){19}\x{10FFFF}|.)", "(a|a|aa)+$", R"((?:\w|\w)+~)"}) {
        CHECK(contains(create_error(regex), regex));
        CHECK(contains(create_error(regex), "steps"));
    }
    CHECK(create_error(R"((?:.|.){4}\x{10FFFF}|.)").empty());
    // Harmless for the sample text at load, and not for these. No byte is lost.
    const auto all_of = [](const Splitter& s, std::string_view text, Splitter::Budget& budget) {
        std::string out;
        for (const std::string_view piece : s.split(text, budget)) out += piece;
        return out == text;
    };
    Splitter::Budget budget = Splitter::Budget::of_steps(1'000'000);
    const std::string text(100'000, 'q');
    CHECK(all_of(splitter({"(q|q|qq)+$"}), text + "b", budget));
    CHECK(budget.spent());
    // Each place takes 2^20 steps, fewer than one match may take. All together share the budget.
    std::string many;
    for (int i = 0; i < 1000; ++i) many += "qqqqqqqqqqqqqqqqqqqq ";
    const Splitter costly = splitter({"(?:q|q){20}~|."});
    Splitter::Budget small = Splitter::Budget::of_steps(4'000'000);
    CHECK(all_of(costly, many, small));
    CHECK(small.spent());
    CHECK(all_of(costly, many, small));
    CHECK(costly.split(std::string(10'000, 'x'), small).size() == 3);  // at fixed lengths
    CHECK(costly.split("xyz").size() == 3);
}

TEST_CASE("a match of many steps is found where the budget allows, with the same pieces") {
    // Backtracks over the whole run, from the first of two places that need it.
    const std::string run(5000, 'u');
    const Splitter s = splitter({"(?:u|v)+u7|(?:u|v)+|\\s+"});
    Splitter::Budget budget(run.size());
    const size_t before = budget.left();
    CHECK(s.split(cat("-- ", run, "! ", run, "!"), budget) ==
          std::vector<std::string_view>{"--", " ", run, "!", " ", run, "!"});
    CHECK(budget.left() < before);
    CHECK(!budget.spent());
}

TEST_CASE("more passes than any tokenizer has are refused") {
    CHECK(Splitter::create(std::vector<std::string>(16, "x")));
    const auto s = Splitter::create(std::vector<std::string>(17, "x"));
    REQUIRE(!s);
    CHECK(contains(s.error().message(), "17"));
}
