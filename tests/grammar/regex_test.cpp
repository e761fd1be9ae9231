// Regular expressions against PCRE2: random texts of our language match there, and verdicts on fixed texts
// agree. Refused constructs are named.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tests/grammar/support.h"

using namespace nibble;
using namespace nibble::grammar_test;

namespace {

class Pcre {
  public:
    explicit Pcre(const std::string& regex) {
        int error = 0;
        PCRE2_SIZE at = 0;
        code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                              PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOLLAR_ENDONLY, &error,
                              &at, nullptr);
        REQUIRE(code_ != nullptr);
        data_ = pcre2_match_data_create_from_pattern(code_, nullptr);
    }
    Pcre(const Pcre&) = delete;
    ~Pcre() {
        pcre2_match_data_free(data_);
        pcre2_code_free(code_);
    }
    bool matches(const std::string& text) const {
        return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data_,
                           nullptr) >= 0;
    }

  private:
    pcre2_code* code_ = nullptr;
    pcre2_match_data* data_ = nullptr;
};

const std::vector<std::string> patterns = {
    "a",
    "abc|de|",
    "[a-c]+x?",
    "(ab){2,3}",
    "(?:a|b)*c",
    "^\\d{3}-\\d{4}$",
    "\\w+@\\w+\\.(com|org)",
    "[^\\s,]{1,5}(,[^\\s,]{1,5})*",
    ".",
    "..",
    "\\x41\\x{1F600}",
    "[\\x{E4}-\\x{FC}]{2}",
    "x{2,}y",
    "a+?b*?c??",
    "[]a]+",
    "[a\\-z]",
    "[-a]",
    "[a-]",
    "\\.\\*\\[\\]",
    "(?<year>\\d\\d)(?P<m>\\d)",
    "^a|b$",
    "\\D\\W\\S",
    "[\\d_]+",
    "[^a-z]",
    "((a|b)(c|d)){0,2}e",
    "\\t\\n\\r",
    "{",
    "a{b}",
    "\xC3\xA9+",
    "(a?){3}b",
    "()a",
    "(|a)b",
};

}  // namespace

TEST_CASE("the language is PCRE2's") {
    std::mt19937 random(1);
    for (const std::string& p : patterns) {
        INFO(p);
        const Pcre pcre("(?:" + p + ")");
        Recognizer r(Grammar::from_regex(p));
        int walked = 0;
        for (int i = 0; i < 40; ++i)
            if (const auto text = r.walk(random, 12)) {
                INFO(*text);
                CHECK(pcre.matches(*text));
                CHECK(r.accepts(*text));
                ++walked;
            }
        CHECK(walked > 0);
        // Texts near the language: the verdicts must agree.
        for (int i = 0; i < 200; ++i) {
            std::string text = r.walk(random, 6).value_or("");
            constexpr std::string_view letters = "abcdexyz019-_,.@{}[] \n\t*";
            for (unsigned n = random() % 3; n > 0; --n) {
                const size_t at = random() % (text.size() + 1);
                if (random() % 2 || at == text.size()) {
                    text.insert(at, 1, letters[random() % letters.size()]);
                } else {
                    text.erase(at, 1);
                }
            }
            if (std::ranges::any_of(text, [](char c) { return c & 0x80; })) continue;  // may be cut
            INFO(text);
            CHECK(r.accepts(text) == pcre.matches(text));
        }
    }
}

TEST_CASE("what is not supported is named") {
    const auto refused = [](const std::string& pattern, const std::string& mentions) {
        const std::string e = error_of(Grammar::from_regex(pattern));
        INFO(pattern << " : " << e);
        CHECK(e.find(mentions) != std::string::npos);
    };
    refused("(?=a)b", "look-around");
    refused("(?<!a)b", "look-around");
    refused("(a)\\1", "back-references");
    refused("\\bword", "word borders");
    refused("(?i)a", "flags");
    refused("(?>a)", "atomic");
    refused("a++", "possessive");
    refused("a**", "quantifier follows");
    refused("*a", "something before it");
    refused("\\p{L}", "Unicode properties");
    refused("a^b", "^ is supported only at the beginning");
    refused("a$b", "$ is supported only at the end");
    refused("(^a)", "^ is supported only");
    refused("[a", "no closing ]");
    refused("[z-a]", "ends before it begins");
    refused("[\\d-z]", "cannot begin a range");
    refused("[[:alpha:]]", "[: classes");
    refused("(a", "expected )");
    refused("a)", "unexpected )");
    refused("a{3,2}", "bad count");
    refused("a{9999999}", "bad count");
    refused("\\", "\\ at the end");
    refused("\\xZZ", "hexadecimal");
    refused("\\q", "\\q is not supported");
    refused("(?<name", "no closing >");
    refused(std::string(3000, '('), "groups in each other");
    refused("((((a{1000}){1000}){1000}){1000})", "larger than");
    refused("a\xFF", "not UTF-8");
}
