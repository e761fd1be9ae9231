// Damaged templates: real ones and the language cases, mutated at random with a fixed seed.
// Parsing and rendering must end in a result or an Error with a place, never in a crash.
#include <filesystem>
#include <random>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "src/text/jinja/chat_template.h"
#include "tests/fuzz_rounds.h"

namespace fs = std::filesystem;
using namespace nibble;
using Json = nlohmann::ordered_json;

namespace {

class Mutator {
  public:
    Mutator(std::vector<std::string> corpus, uint32_t seed) : corpus_(std::move(corpus)), random_(seed) {}

    std::string next() {
        std::string s = corpus_[below(corpus_.size())];
        if (s.size() > 3000) s = s.substr(below(s.size() - 2000), 2000);
        for (size_t n = 1 + below(6); n > 0 && !s.empty(); --n) mutate(s);
        return s;
    }

  private:
    size_t below(size_t n) { return n == 0 ? 0 : std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

    void mutate(std::string& s) {
        static constexpr std::string_view pieces[] = {"{{",
                                                      "}}",
                                                      "{%",
                                                      "%}",
                                                      "{%-",
                                                      "-%}",
                                                      "{#",
                                                      "#}",
                                                      "(",
                                                      ")",
                                                      "[",
                                                      "]",
                                                      "{",
                                                      "}",
                                                      "'",
                                                      "\"",
                                                      "\\",
                                                      "|",
                                                      ".",
                                                      ",",
                                                      ":",
                                                      "=",
                                                      "==",
                                                      "+",
                                                      "-",
                                                      "*",
                                                      "**",
                                                      "/",
                                                      "//",
                                                      "%",
                                                      "~",
                                                      " is ",
                                                      " not ",
                                                      " in ",
                                                      " if ",
                                                      " else ",
                                                      " and ",
                                                      " or ",
                                                      "for ",
                                                      "endfor",
                                                      "endif",
                                                      "set ",
                                                      "macro ",
                                                      "none",
                                                      "true",
                                                      "0",
                                                      "-1",
                                                      "1e308",
                                                      "9223372036854775807",
                                                      "messages",
                                                      "loop",
                                                      "namespace(",
                                                      "|tojson",
                                                      "|join",
                                                      "|length",
                                                      "|map(",
                                                      ".items()",
                                                      ".split(",
                                                      "[::-1]",
                                                      "[1:]",
                                                      "range(",
                                                      "caller()",
                                                      "\n",
                                                      "\r",
                                                      "\xff",
                                                      "\xe2\x98\x83",
                                                      std::string_view("\0", 1)};
        const size_t at = below(s.size()), length = std::min(below(12), s.size() - at);
        switch (below(5)) {
            case 0:
                s.erase(at, length);
                break;
            case 1:
                s.insert(at, pieces[below(std::size(pieces))]);
                break;
            case 2:
                s.replace(at, length, pieces[below(std::size(pieces))]);
                break;
            case 3:
                s.insert(below(s.size()), s.substr(at, length * 4));
                break;
            default: {
                const std::string& other = corpus_[below(corpus_.size())];
                s.insert(at, other.substr(below(other.size()), below(60)));
            }
        }
    }

    std::vector<std::string> corpus_;
    std::mt19937 random_;
};

}  // namespace

TEST_CASE("damaged templates end in a result or an error") {
    std::vector<std::string> corpus;
    for (const auto& entry : fs::directory_iterator(NIBBLE_SOURCE_DIR "/tests/data/templates")) {
        if (entry.path().extension() == ".jinja") corpus.push_back(*read_text_file(entry.path()));
    }
    const auto text = read_text_file(NIBBLE_SOURCE_DIR "/tests/jinja/cases.json");
    REQUIRE(text.ok());
    const Json golden = Json::parse(*text);
    for (const Json& c : golden.at("cases")) corpus.push_back(c.at("template"));

    ChatTemplate::Input in;
    in.extra = golden.at("context");
    in.messages = Json::parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U\u2603"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": [1]}}}]},
        {"role": "tool", "content": "r"}, {"role": "user", "content": "x<|im_start|>"}])");
    in.tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "description": "d",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}}])");
    jinja::Limits limits;
    limits.steps = 20'000;
    limits.bytes = 4 << 20;
    limits.output = 1 << 20;

    const FuzzRounds rounds(20000);
    Mutator mutator(std::move(corpus), static_cast<uint32_t>(rounds.first));
    size_t rendered = 0, refused = 0;
    for (uint64_t i = rounds.n(); i > 0; --i) {
        const std::string source = mutator.next();
        CAPTURE(source);
        const auto t = ChatTemplate::parse(source, "fuzz", limits);
        const auto r = t.ok() ? t->render_segments(in) : Result<std::vector<TemplateSegment>>(t.error());
        if (r.ok()) {
            ++rendered;
            continue;
        }
        ++refused;
        REQUIRE(r.error().where.starts_with("fuzz:"));
        REQUIRE_FALSE(r.error().what.empty());
    }
    CHECK(rendered > 100);
    CHECK(refused > 100);
}
