// Thinking in the chat format: the template's switches, answers without thoughts, and what of former answers
// the model is told. The vocabulary is bytes and a family's marks; the templates are those of real models.
#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "src/chat/format.h"
#include "src/text/utf8.h"

using namespace nibble;

namespace {

Tokenizer tokenizer_with(std::initializer_list<const char*> marks) {
    Vocab v;
    v.pre = "gpt-2";
    for (const std::string& c : byte_alphabet()) v.tokens.push_back(c);
    v.types.assign(v.tokens.size(), static_cast<uint8_t>(TokenType::normal));
    for (const char* m : marks) {
        v.tokens.emplace_back(m);
        v.types.push_back(static_cast<uint8_t>(TokenType::control));
    }
    auto t = Tokenizer::create(std::move(v));
    REQUIRE_MESSAGE(t, (t ? "" : t.error().message()));
    return std::move(*t);
}

ChatFormat format_of(const Tokenizer& t, std::string source, nlohmann::ordered_json variables = nullptr) {
    auto chat = ChatTemplate::parse(std::move(source), "template");
    REQUIRE_MESSAGE(chat, (chat ? "" : chat.error().message()));
    return {t, std::move(*chat), true, std::move(variables)};
}

std::string file(const char* name) {
    const std::string path = cat(NIBBLE_SOURCE_DIR, "/tests/data/templates/", name, ".jinja");
    auto text = read_text_file(path);
    REQUIRE_MESSAGE(text, (text ? "" : text.error().message()));
    return *text;
}

std::string prompt(const ChatFormat& f, std::vector<Message> messages = {{"user", "Hi"}}) {
    const auto p = f.render({"", std::move(messages)});
    REQUIRE_MESSAGE(p, (p ? "" : p.error().message()));
    return p->text();
}

bool ends(const ChatFormat& f, std::string_view end) { return prompt(f).ends_with(end); }

using Mode = Thinking::Mode;

}  // namespace

TEST_CASE("thinking: the template's own switch") {
    const Tokenizer t = tokenizer_with({});
    ChatFormat f = format_of(t, file("Qwen3.5-4B"));
    CHECK(ends(f, "<think>\n"));
    CHECK(f.render({"", {{"user", "Hi"}}})->opens_thinking);
    CHECK(f.set_thinking({Mode::off, {}}));
    CHECK(ends(f, "assistant\n<think>\n\n</think>\n\n"));
    CHECK(!f.render({"", {{"user", "Hi"}}})->opens_thinking);
    CHECK(f.set_thinking({Mode::on, {}}));
    CHECK(ends(f, "assistant\n<think>\n"));
    CHECK(!f.set_thinking({Mode::on, "low"}));  // knows no effort
    ChatFormat deepseek = format_of(t, file("deepseek-ai-DeepSeek-V3.1"));
    CHECK(ends(deepseek, "</think>"));
    CHECK(deepseek.set_thinking({Mode::on, {}}));
    CHECK(ends(deepseek, "<think>"));
    // Variables as given, and beside them the switch.
    ChatFormat given = format_of(t, "{{ a }}{% if thinking_budget == 0 %} off{% endif %}", {{"a", "x"}});
    CHECK(prompt(given) == "x");
    CHECK(given.set_thinking({Mode::off, {}}));
    CHECK(prompt(given) == "x off");
}

TEST_CASE("thinking: off where the template has no switch") {
    const Tokenizer t = tokenizer_with({}), marks = tokenizer_with({"[THINK]", "[/THINK]"});
    ChatFormat r1 = format_of(t, file("llama-cpp-deepseek-r1"));
    CHECK(ends(r1, "<think>\n"));
    CHECK(r1.set_thinking({Mode::off, {}}));
    CHECK(ends(r1, "<think>\n\n</think>\n\n"));
    CHECK(r1.set_thinking({Mode::on, {}}));
    CHECK(ends(r1, "<think>\n"));
    ChatFormat own = format_of(marks, "{{ messages[0].content }}[THINK]");
    CHECK(own.set_thinking({Mode::off, {}}));
    CHECK(prompt(own) == "Hi[THINK]\n[/THINK]\n\n");
    ChatFormat none = format_of(marks, "{{ messages[0].content }}: ");
    CHECK(!none.set_thinking({Mode::off, {}}));
    CHECK(prompt(none) == "Hi: ");
    // The user's words open nothing.
    ChatFormat user = format_of(t, "{{ messages[0].content }}");
    CHECK(!user.render({"", {{"user", "<think>"}}})->opens_thinking);
}

TEST_CASE("thinking: gpt-oss") {
    const Tokenizer t =
        tokenizer_with({"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"});
    ChatFormat f = format_of(t, file("openai-gpt-oss-120b"));
    CHECK(f.stops().empty());
    CHECK(prompt(f).find("Reasoning: medium") != std::string::npos);
    CHECK(f.set_thinking({Mode::on, "high"}));
    CHECK(prompt(f).find("Reasoning: high") != std::string::npos);
    CHECK(ends(f, "<|start|>assistant"));
    CHECK(f.set_thinking({Mode::off, {}}));
    CHECK(ends(f, "<|start|>assistant<|channel|>final<|message|>"));
    const std::string talk =
        prompt(f, {{"user", "Hi"}, {"assistant", "<think>Hm.</think>\n\nYes."}, {"user", "So?"}});
    CHECK(talk.find("<|channel|>final<|message|>Yes.<|end|>") != std::string::npos);
    CHECK(talk.find("Hm.") == std::string::npos);
    CHECK(talk.find("think>") == std::string::npos);
    // Another format has no parts.
    ChatFormat plain = format_of(t, "{{ messages[0].content }}");
    CHECK(!plain.set_thinking({Mode::off, {}}));
    CHECK(prompt(plain) == "Hi");
    // Where thoughts are wanted they come by either name.
    const ChatFormat fields = format_of(t,
                                        "{% for m in messages %}{{ m.thinking }}|{{ m.reasoning_content }}|"
                                        "{{ m.content }}\n{% endfor %}");
    CHECK(prompt(fields, {{"user", "u"}, {"assistant", "<think>a</think>b"}, {"assistant", "c"}}) ==
          "||u\na|a|b\n||c\n");
}
