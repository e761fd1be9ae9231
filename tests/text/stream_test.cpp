// Streaming: characters never in halves, stop strings never in part.
// Every way of cutting a text into pushes must give the same result.
#include "src/text/detokenizer.h"
#include "src/text/stop.h"
#include "tests/text/common.h"

using namespace nibble;
using namespace nibble::text_test;

namespace {

// Byte tokens of byte_vocab(): id equals byte.
std::vector<std::string> pushes(Detokenizer& d, std::string_view bytes) {
    std::vector<std::string> out;
    for (const char c : bytes) out.push_back(d.push(static_cast<unsigned char>(c)));
    out.push_back(d.flush());
    return out;
}

// The definition: the stop that is complete first, of several that end together the longest.
std::pair<std::string, std::string> expected(const std::vector<std::string>& stops, const std::string& text) {
    for (size_t end = 1; end <= text.size(); ++end) {
        const std::string head = text.substr(0, end);
        std::string best;
        for (const std::string& s : stops)
            if (s.size() > best.size() && std::string_view(head).ends_with(s)) best = s;
        if (!best.empty()) return {head.substr(0, end - best.size()), best};
    }
    return {text, ""};
}

}  // namespace

TEST_CASE("characters come out whole, as soon as they are complete") {
    const Tokenizer tokenizer = must_create(byte_vocab());
    Detokenizer d(tokenizer);
    using Texts = std::vector<std::string>;
    CHECK(pushes(d, "a\xC3\xA9") == Texts{"a", "", "\xC3\xA9", ""});
    CHECK(pushes(d, "\xF0\x9F\x99\x82") == Texts{"", "", "", "\xF0\x9F\x99\x82", ""});
    CHECK(pushes(d, "\xFFz") == Texts{"\xEF\xBF\xBD", "z", ""});
    CHECK(pushes(d, "\xE2\x82z") == Texts{"", "", "\xEF\xBF\xBDz", ""});
    CHECK(pushes(d, "\xE0\x80") == Texts{"", "\xEF\xBF\xBD\xEF\xBF\xBD", ""});  // E0 80 can begin nothing
    CHECK(pushes(d, "\xE2\x82") == Texts{"", "", "\xEF\xBF\xBD"});
    CHECK(d.push(-1).empty());
    CHECK(d.push(256).empty());
}

TEST_CASE("control tokens are silent; the prefixed space goes only from a fresh text") {
    Vocab v = spm_vocab();
    v.bos = add(v, "<s>", TokenType::control);
    const Token word = add(v, "\xE2\x96\x81hi");
    const Tokenizer tokenizer = must_create(std::move(v));
    Detokenizer continued(tokenizer), fresh(tokenizer, true);
    CHECK(continued.push(*tokenizer.vocab().bos).empty());
    CHECK(continued.push(word) == " hi");
    CHECK(fresh.push(*tokenizer.vocab().bos).empty());
    CHECK(fresh.push(word) == "hi");
    CHECK(fresh.push(word) == " hi");
    CHECK(tokenizer.decode(std::vector<Token>{*tokenizer.vocab().bos, word, word}) == "<s>hi hi");
    CHECK(tokenizer.decode(std::vector<Token>{*tokenizer.vocab().bos, word, word}, false) == "hi hi");
}

TEST_CASE("a stop string ends the text before it, however the text arrives") {
    const std::vector<std::vector<std::string>> lists = {
        {"abcd", "bc"}, {"aab"},           {"aaa", "ab"},     {"b", "abc", "cabca"}, {""}, {},
        {"", "ba"},     {"abab", "ababc"}, {"c", "bc", "abc"}};
    for (const auto& stops : lists)
        for (int code = 0; code < 2187; ++code) {  // all texts of seven letters out of three
            std::string text;
            for (int c = code, i = 0; i < 7; ++i, c /= 3) text += "abc"[c % 3];
            const auto [printed, stop] = expected(stops, text);
            for (const size_t step : {size_t{1}, size_t{2}, size_t{3}, size_t{7}}) {
                StopMatcher matcher(stops);
                std::string out;
                for (size_t at = 0; at < text.size(); at += step) {
                    out += matcher.push(std::string_view(text).substr(at, step));
                    REQUIRE(printed.starts_with(out));
                }
                out += matcher.flush();
                REQUIRE(out == printed);
                REQUIRE(matcher.matched() == !stop.empty());
                REQUIRE(matcher.match() == stop);
                if (matcher.matched()) REQUIRE(matcher.push("more").empty());
            }
        }
}

TEST_CASE("nothing is held back that cannot begin a stop string; long ones are linear") {
    StopMatcher matcher({"\n\nUser:"});
    CHECK(matcher.push("Hello\n") == "Hello");
    CHECK(matcher.push("world\n\nUse") == "\nworld");
    CHECK(matcher.push("ful\n\n") == "\n\nUseful");
    CHECK(matcher.push("User: hi") == "");
    CHECK(matcher.matched());
    CHECK(matcher.match() == "\n\nUser:");
    CHECK(matcher.flush().empty());

    const std::string long_stop = std::string(1 << 20, 'a') + "b";
    StopMatcher patient({long_stop});
    std::string out = patient.push(std::string((1 << 20) + 5, 'a'));
    CHECK(out.size() == 5);
    CHECK(patient.push("b").empty());
    CHECK(patient.matched());
}
