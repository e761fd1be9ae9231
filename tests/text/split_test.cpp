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

    const Splitter exponential = splitter({"(a|a|aa)+$"});
    const std::string text(100'000, 'a');
    size_t covered = 0;
    for (const std::string_view piece : exponential.split(text + "b")) covered += piece.size();
    CHECK(covered == text.size() + 1);
    CHECK(!split_regexes("no-such-kind"));
    CHECK(contains(split_regexes("no-such-kind").error().message(), "no-such-kind"));
}
