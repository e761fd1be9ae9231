// Any bytes in, the same bytes out; long runs in bounded time; stream and whole text agree.
// The generator is fixed, so every machine sees the same texts.
#include <cstdint>

#include "src/text/detokenizer.h"
#include "src/text/split.h"
#include "tests/text/common.h"

using namespace nibble;
using namespace nibble::text_test;

namespace {

// splitmix64 (Steele, Lea & Flood 2014).
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }
    size_t below(size_t n) { return static_cast<size_t>(next() % n); }

  private:
    uint64_t state_;
};

// Words, spaces, digits, characters of every length, broken ones, and bytes.
std::string random_text(Random& r) {
    static const std::vector<std::string> parts = {"the ",
                                                   " of",
                                                   "'ll",
                                                   "\n",
                                                   "\r\n",
                                                   "   ",
                                                   "\t",
                                                   "12345",
                                                   "\xC3\xA9",
                                                   "\xE4\xBD\xA0",
                                                   "\xF0\x9F\x99\x82",
                                                   "\xE2\x80\x8D",
                                                   "\xCC\x81",
                                                   "<|im_end|>",
                                                   "<think>",
                                                   "!?",
                                                   "\xE2\x82",
                                                   "\xF0\x9F",
                                                   "\xED\xA0\x80",
                                                   "\xC0\xAF",
                                                   "\xFF",
                                                   std::string(1, '\0'),
                                                   "\xC2\xA0",
                                                   "<|"};
    std::string s;
    for (size_t n = r.below(24); n > 0; --n) {
        if (r.below(3) == 0)
            s += static_cast<char>(r.below(256));
        else
            s += parts[r.below(parts.size())];
    }
    return s;
}

// Invalid bytes replaced as the streaming detokenizer must do it, straight from the definition.
std::string printable(std::string_view s) {
    std::string out;
    while (!s.empty()) {
        size_t n = static_cast<size_t>(valid_utf8_at(s));
        if (n > 0) {
            out += s.substr(0, n);
        } else {
            n = std::max<size_t>(1, unfinished_utf8_at(s));
            out += "\xEF\xBF\xBD";
        }
        s.remove_prefix(n);
    }
    return out;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<Token>& ids) {
    Detokenizer detokenizer(tokenizer, true);
    std::string text;
    for (const Token id : ids) {
        const std::string part = detokenizer.push(id);
        CHECK(printable(part) == part);  // never half a character
        text += part;
    }
    return text + detokenizer.flush();
}

}  // namespace

TEST_CASE("random bytes survive encoding and decoding, whole and as a stream") {
    for (const char* path :
         {"models/fairytale", "tests/data/tokenizers/gpt-2.gguf", "tests/data/tokenizers/phi-3.gguf"}) {
        INFO(path);
        const Tokenizer tokenizer = open_tokenizer(root / path);
        Random random(20240607);
        for (int i = 0; i < 3000; ++i) {
            const std::string text = random_text(random);
            INFO(nlohmann::json::binary(std::vector<uint8_t>(text.begin(), text.end())).dump());
            const auto ids = tokenizer.encode(text, plain);
            REQUIRE(tokenizer.decode(ids) == text);
            REQUIRE(stream(tokenizer, ids) == printable(text));
            REQUIRE(tokenizer.decode(tokenizer.encode(text, special)) == text);
        }
    }
}

TEST_CASE("a megabyte of one character takes no longer than a megabyte of text") {
    const std::vector<std::string> units = {"a", " ", "\n", "<",  "<|", "\xFF", "\xE4\xBD\xA0",
                                            "A", "1", "!",  " a", "'"};
    for (const char* path :
         {"models/fairytale", "tests/data/tokenizers/gpt-2.gguf", "tests/data/tokenizers/phi-3.gguf"}) {
        const Tokenizer tokenizer = open_tokenizer(root / path);
        for (const std::string& unit : units) {
            INFO(path << " '" << unit << "'");
            std::string text;
            while (text.size() < 1 << 20) text += unit;
            CHECK(tokenizer.decode(tokenizer.encode(text, special)) == text);  // quadratic: hours
        }
    }
}

TEST_CASE("every kind of split covers its text, also when the text is one long run") {
    for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "smollm", "starcoder", "refact", "command-r",
                            "deepseek-llm", "deepseek-coder", "tekken", "gpt-4o", "o200k"}) {
        INFO(pre);
        const auto regexes = split_regexes(pre);
        REQUIRE(regexes);
        const auto splitter = Splitter::create(*regexes);
        REQUIRE_MESSAGE(splitter, (splitter ? "" : splitter.error().message()));
        Random random(7);
        for (int i = 0; i < 500; ++i) {
            const std::string text = random_text(random);
            std::string joined;
            for (const std::string_view piece : splitter->split(text)) {
                CHECK(!piece.empty());
                joined += piece;
            }
            REQUIRE(joined == text);
        }
        for (const char* unit : {"a", " ", "A", "\xE4\xBD\xA0", "\n", "7", "aB", "\xFF"}) {
            std::string text;
            while (text.size() < 1 << 18) text += unit;
            CHECK(!splitter->split(text).empty());
        }
    }
}
