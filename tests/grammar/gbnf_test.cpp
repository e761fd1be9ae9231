// GBNF: what each construct accepts and refuses, recursion, and texts that are no grammars.
// Also that hostile grammars end as an error or in time.

#include "ggml/base/cat.h"
#include "tests/grammar/support.h"

using namespace nibble;
using namespace nibble::grammar_test;

namespace {

struct Case {
    std::string grammar;
    std::vector<std::string> accepted, refused;
};

void check(const Case& c) {
    INFO(c.grammar);
    Recognizer r(Grammar::from_gbnf(c.grammar));
    for (const std::string& text : c.accepted) {
        INFO("text: " << text);
        CHECK(r.accepts(text));
        for (size_t n = 0; n <= text.size(); ++n) CHECK(r.begins(text.substr(0, n)));
    }
    for (const std::string& text : c.refused) {
        INFO("text: " << text);
        CHECK(!r.accepts(text));
    }
}

}  // namespace

TEST_CASE("constructs of GBNF") {
    const std::vector<Case> cases = {
        {"root ::= \"a\"", {"a"}, {"", "b", "aa"}},
        {"root ::= \"a\" | \"bc\" |", {"a", "bc", ""}, {"b", "abc"}},
        {"root ::= \"a\"\n  | \"b\" # comment\n  | \"c\"\n", {"a", "b", "c"}, {"", "ab"}},
        {"root ::= (\n \"a\" |\n \"b\"\n) \"c\"", {"ac", "bc"}, {"c", "a"}},
        {"# first\nroot ::= x y-1\nx ::= \"x\"\ny-1 ::= [0-9]+", {"x1", "x12"}, {"x", "1"}},
        {"root ::= \"ab\"*", {"", "ab", "abab"}, {"a", "aba"}},
        {"root ::= [a-c]+ \"!\"?", {"a", "abc!", "c"}, {"", "!", "d", "a!!"}},
        {"root ::= \"a\"{3}", {"aaa"}, {"aa", "aaaa"}},
        {"root ::= \"a\"{2,}", {"aa", "aaaaa"}, {"a", ""}},
        {"root ::= (\"a\" \"b\"?){1,3}", {"a", "ab", "abab", "aab", "aaa"}, {"", "b", "aaaa", "abb"}},
        {"root ::= \"a\"{0,0} \"b\"", {"b"}, {"ab"}},
        {"root ::= [^a-z\\]\\\\]",
         {"A", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"},
         {"a", "]", "\\", "AB"}},
        {"root ::= [\\x41\\u00e9\\U0001F600\\n-]",
         {"A", "\xC3\xA9", "\xF0\x9F\x98\x80", "\n", "-"},
         {"\xC3", "e"}},
        {"root ::= \"\\\"\\\\\\t\\u20AC\"", {"\"\\\t\xE2\x82\xAC"}, {"\"\\\t"}},
        {"root ::= . .",
         {"ab", "\xC3\xA9\n", "\xF0\x9F\x98\x80\xE2\x82\xAC"},
         {"a", "abc", "\xFF\xFF", "\xED\xA0\x80x"}},
        {"root ::= [\xC3\xA4-\xC3\xBC]", {"\xC3\xA5", "\xC3\xBC"}, {"\xC3\xA3", "\xC3\xBD"}},
        {"root ::= \"(\" root \")\" | \"x\"", {"x", "(x)", "((((x))))"}, {"(x", "x)", "((x)"}},
        {"root ::= item root | item\nitem ::= \"a\" | \"b\"", {"a", "abab"}, {"", "abc"}},
        {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"",
         {"", "ab", "aacb", "aaabcb"},
         {"a", "abb", "aab"}},
        {"root ::= y root x | y\ny ::= \"a\" | \"c\"\nx ::= \"b\"? \"d\"?",
         {"a", "ac", "aabd", "accbdb", "aaabbd"},
         {"", "b", "adbdb", "acdbb"}},
        {"root ::= (\"a\"* \"a\"*)* \"b\"", {"b", "aaaaab"}, {"a", "aaaa", "bb"}},
        {"root ::= a | dead\na ::= \"a\"\ndead ::= \"d\" dead", {"a"}, {"d", "dd"}},
        {"root ::= \"<think>\" [^<]* \"</think>\" [0-9]{1,3}",
         {"<think>hm</think>42"},
         {"42", "<think></think>"}},
    };
    for (const Case& c : cases) check(c);
}

TEST_CASE("texts that are no grammars") {
    const auto refused = [](const std::string& grammar, const std::string& mentions) {
        const std::string e = error_of(Grammar::from_gbnf(grammar));
        INFO(grammar << " : " << e);
        CHECK(e.find(mentions) != std::string::npos);
    };
    refused("", "no rule named root");
    refused("x ::= \"a\"", "no rule named root");
    refused("root ::= y", "rule y: is used but not defined");
    refused("root = \"a\"", "line 1 column 6: expected ::=");
    refused("root ::= \"a\nb\"", "no closing \"");
    refused("root ::= [a", "no closing ]");
    refused("root ::= (\"a\"", "expected )");
    refused("root ::= \"a\")", "unexpected ')'");
    refused("root ::= *", "unexpected '*'");
    refused("root ::= \"\\q\"", "unknown escape");
    refused("root ::= \"\\uD800\"", "not a Unicode character");
    refused("root ::= \"a\"{2,1}", "bad upper count");
    refused("root ::= \"a\"{99999999999}", "expected a count");
    refused("root ::= [z-a]", "ends before it begins");
    refused("root ::= \"a\"\nroot ::= \"b\"", "defined twice");
    refused("root ::= <tool>", "references to tokens");
    refused("root ::= root \"a\" | \"b\"", "begins with itself: root > root");
    refused("root ::= a\na ::= b? c \"x\" | \"y\"\nb ::= \"b\"\nc ::= a", "begins with itself: a > c > a");
    refused("root ::= \"a\" root", "no text can ever match");
    refused("root ::= []", "no text can ever match");
    refused("root ::= \"\xFF\"", "not UTF-8 at byte 10");
    refused("root ::= ((((\"a\"{1000}){1000}){1000}){1000})", "larger than");
    refused("root ::= ((((\"\"{1000000}){1000000}){1000000}){1000000}) []", "no text can ever match");
    refused(cat("root ::= ", std::string(5000, '(')), "groups in each other");
    refused(cat("root ::= \"a\"", std::string(5000, '*')), "too many repetitions");
    refused(cat("root ::= ", std::string(2 << 20, ' ')), "bytes; at most");
}

TEST_CASE("ambiguity and depth cost little") {
    // Catalan-many parses of one text.
    Recognizer ambiguous(Grammar::from_gbnf(
        "root ::= \"a\" | \"(\" root root \")\" | \"(\" root \")\" | \"(\" root root root \")\""));
    std::string text;
    for (int i = 0; i < 300; ++i) text += "(a";
    for (int i = 0; i < 300; ++i) text.append(i % 3 ? "a)" : ")");
    CHECK(ambiguous.begins(text));
    // What many parses return to is shared, and walked once however many ways lead to it.
    Recognizer branching(Grammar::from_gbnf(R"(root ::= s "#"
s ::= "a" s s s | "")"));
    CHECK(branching.accepts(std::string(100, 'a') + "#"));
    Recognizer optional(Grammar::from_gbnf("root ::= (((\"a\"?){20}){20}){20} \"b\""));
    CHECK(optional.accepts(cat(std::string(400, 'a'), "b")));
    CHECK(!optional.accepts(cat(std::string(8001, 'a'), "b")));
    // The k-th letter from the end: a deterministic automaton would need 2^40 states.
    Recognizer subset(Grammar::from_gbnf("root ::= [ab]* \"a\" [ab]{39}"));
    std::string letters;
    for (uint32_t i = 0, x = 1; i < 2000; ++i, x = x * 1103515245 + 12345) letters += x >> 16 & 1 ? 'a' : 'b';
    CHECK(subset.accepts(letters) == (letters[letters.size() - 40] == 'a'));
    // Deeper than the limit: refused there, and said so.
    Recognizer deep(Grammar::from_gbnf("root ::= \"(\" root \")\" | \"x\""));
    CHECK(deep.begins(std::string(Stacks::max_depth, '(')));
    CHECK(!deep.automaton().take_too_deep());
    CHECK(!deep.begins(std::string(Stacks::max_depth + 10, '(')));
    CHECK(deep.automaton().take_too_deep());
    const std::string full = cat(std::string(1500, '('), "x", std::string(1500, ')'));
    CHECK(deep.accepts(full));
    // A million bytes of right recursion on a bounded number of states.
    Recognizer right(Grammar::from_gbnf("root ::= \"a\" root | \"b\""));
    CHECK(right.accepts(cat(std::string(1'000'000, 'a'), "b")));
    CHECK(right.automaton().size() < 10);
}

TEST_CASE("collecting keeps the positions in use") {
    Recognizer r(Grammar::from_gbnf("root ::= \"[\" (root (\",\" root)*)? \"]\" | [0-9]+"));
    std::string text = "[[1,2],[3,[4,[5";
    ParseState s = r.after(text), other = r.after("[[");
    for (const char c : std::string_view("]],6],[]")) {
        r.automaton().collect({&s, &other});
        s = r.automaton().next(s, static_cast<unsigned char>(c));
        REQUIRE(s != dead_state);
        CHECK(!r.automaton().may_end(s));
        text += c;
    }
    s = r.automaton().next(s, ']');
    CHECK(r.automaton().may_end(s));
    CHECK(r.accepts(text + "]"));
    for (const char c : std::string_view("7]]"))
        other = r.automaton().next(other, static_cast<unsigned char>(c));
    CHECK(r.automaton().may_end(other));
}

TEST_CASE("damaged grammars never crash") {
    const std::string good =
        "root ::= \"a\" (x | [^b-d\\n]{2,5})* y+ # c\nx ::= \"\\u00e9\" | . y?\ny ::= \"(\" root \")\" | "
        "[0-9]\n";
    const std::string_view damage = "\"()[]{}|*+?.\\^-#:=0 \nxyz\xC3";
    std::mt19937 random(7);
    int compiled = 0;
    for (int i = 0; i < 3000; ++i) {
        std::string text = good;
        for (unsigned n = 1 + random() % 4; n > 0; --n) {
            const size_t at = random() % text.size();
            if (random() % 3 == 0) {
                text.erase(at, 1 + random() % 5);
            } else {
                text.insert(at, 1, damage[random() % damage.size()]);
            }
            if (text.empty()) text.push_back(0x20);
        }
        auto g = Grammar::from_gbnf(text);
        if (!g) {
            CHECK(!g.error().message().empty());
            continue;
        }
        ++compiled;
        Recognizer r(std::move(g));
        if (const auto walked = r.walk(random, 20)) CHECK(r.accepts(*walked));
    }
    CHECK(compiled > 100);
}
