// Thoughts: the marks of each family become <think> and </think>, and text is told apart however it is cut.
// The tokens are bytes and the marks of a family.
#include "src/text/thoughts.h"

#include <initializer_list>
#include <map>

#include "src/text/detokenizer.h"
#include "tests/text/common.h"

using namespace nibble;
using namespace nibble::text_test;

namespace {

// A tokenizer with the marks of one family, and texts in which these are spelled out.
struct Family {
    explicit Family(std::initializer_list<const char*> marks, TokenType type = TokenType::control) {
        Vocab v = byte_vocab();
        for (const char* m : marks) ids[m] = add(v, m, type);
        tokenizer.emplace(must_create(std::move(v)));
    }
    std::string read(const std::string& spelled) const {
        Detokenizer d(*tokenizer);
        std::string text;
        for (size_t i = 0; i < spelled.size();) {
            const auto here = std::string_view(spelled).substr(i);
            const auto mark =
                std::ranges::find_if(ids, [&](const auto& m) { return here.starts_with(m.first); });
            text += d.push(mark != ids.end() ? mark->second : static_cast<unsigned char>(spelled[i]));
            i += mark != ids.end() ? mark->first.size() : 1;
        }
        return text + d.flush();
    }

    std::map<std::string, Token> ids;
    std::optional<Tokenizer> tokenizer;
};

using Pieces = std::vector<std::pair<std::string, bool>>;

// Neighbours of one kind joined.
Pieces split(std::string_view text, size_t step, bool thinking) {
    ThoughtSplitter s(thinking);
    Pieces out;
    const auto take = [&](const std::vector<ThoughtSplitter::Piece>& pieces) {
        for (const auto& [piece, thought] : pieces)
            if (!out.empty() && out.back().second == thought)
                out.back().first += piece;
            else
                out.emplace_back(piece, thought);
    };
    for (size_t i = 0; i < text.size(); i += step) take(s.push(text.substr(i, step)));
    take(s.flush());
    return out;
}

}  // namespace

TEST_CASE("thoughts: gpt-oss names the parts of an answer") {
    const Family f({"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"});
    CHECK(f.read("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."
                 "<|return|>") == "<think>Hm.</think>\n\nYes.");
    CHECK(f.read("<|channel|>final<|message|>Yes.<|return|>") == "Yes.");
    CHECK(f.read("Yes.") == "Yes.");  // the prompt began the part
    // What it says before it calls a function is for the reader; two parts of thoughts are two.
    CHECK(
        f.read("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>analysis"
               "<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant"
               "<|message|>c") == "I look.\n\n<think>a</think>\n\n<think>b</think>\n\nc");
    // Cut in a name, in thoughts; thoughts that the next part ends.
    CHECK(f.read("<|channel|>anal") == "");
    CHECK(f.read("<|channel|>analysis<|message|>Hm") == "<think>Hm");
    CHECK(f.read("<|channel|>analysis<|message|>Hm<|channel|>final<|message|>Yes") ==
          "<think>Hm</think>\n\nYes");
    // A name without an end is text after all.
    const std::string text(100, 'x');
    CHECK(f.read("<|channel|>" + text) == text);
    // Half a character before a mark.
    CHECK(f.read("<|channel|>analysis<|message|>\xC3<|end|>") == "<think>\xEF\xBF\xBD</think>");
    CHECK(!f.tokenizer->is_end_of_generation(f.ids.at("<|end|>")));
}

TEST_CASE("thoughts: other families") {
    const Family gemma({"<|channel>", "<channel|>"});
    CHECK(gemma.read("<|channel>thought\nHm.\n<channel|>Yes.") == "<think>Hm.\n</think>\n\nYes.");
    CHECK(gemma.read("<|channel>thought\n<channel|>Yes.") == "<think></think>\n\nYes.");
    CHECK(gemma.read("<|channel>thought<channel|>Yes.") == "<think></think>\n\nYes.");
    CHECK(gemma.read("Yes.\n") == "Yes.\n");
    const Family mistral({"[THINK]", "[/THINK]"});
    CHECK(mistral.read("[THINK]Hm.[/THINK]\nYes.") == "<think>Hm.</think>\nYes.");
    CHECK(mistral.read("Hm.[/THINK]Yes.") == "Hm.</think>\n\nYes.");  // the prompt opened them
    const Family seed({"<seed:think>", "</seed:think>"}, TokenType::user_defined);
    CHECK(seed.read("<seed:think>Hm.</seed:think>Yes.") == "<think>Hm.</think>\n\nYes.");
    // Marks that are text already stay as they are, those that are control tokens come out.
    const Family plain({"<think>", "</think>"}, TokenType::user_defined);
    CHECK(!plain.tokenizer->thought_tokens());
    CHECK(plain.read("<think>Hm.</think>Yes.") == "<think>Hm.</think>Yes.");
    CHECK(Family({"<think>", "</think>"}).read("<think>Hm.</think>\n\nYes.") == "<think>Hm.</think>\n\nYes.");
    // Half of the marks are none.
    CHECK(Family({"[THINK]"}).read("[THINK]Hm.") == "Hm.");
    CHECK(Family({"<|end|>", "<|channel|>", "<|message|>"}).read("<|channel|>a<|message|>b") == "ab");
}

TEST_CASE("thoughts are told from the answer however the text is cut") {
    const struct {
        std::string_view text;
        bool thinking;
        Pieces expected;
        std::string_view thoughts, answer;
    } cases[] = {
        {"<think>\na < b\n</think>\n\n Yes.\n",
         false,
         {{"<think>\na < b\n</think>\n\n ", true}, {"Yes.\n", false}},
         "a < b",
         "Yes.\n"},
        {"a\n</think>Yes", true, {{"a\n</think>", true}, {"Yes", false}}, "a", "Yes"},
        {"x<thin> </think>", false, {{"x<thin> </think>", false}}, "", "x<thin> </think>"},
        {"x<think>a</thin", false, {{"x", false}, {"<think>a</thin", true}}, "a</thin", "x"},
        {"<think>a</think> <think>b</think>c",
         false,
         {{"<think>a</think> <think>b</think>", true}, {"c", false}},
         "a b",
         "c"},
        {"x<thi", false, {{"x<thi", false}}, "", "x<thi"},
        {"", false, {}, "", ""},
    };
    for (const auto& c : cases) {
        INFO(std::string(c.text));
        for (size_t step = 1; step <= c.text.size(); ++step)
            CHECK(split(c.text, step, c.thinking) == c.expected);
        const SplitAnswer s = split_thoughts(c.text, c.thinking);
        CHECK(s.thoughts == c.thoughts);
        CHECK(s.answer == c.answer);
    }
}
