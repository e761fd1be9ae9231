// The named templates in prompts/: exact text for a short conversation, and what is text and what is
// template. Written out by hand from each format's description.
#include <filesystem>

#include <doctest/doctest.h>

#include "ggml/base/mapped_file.h"
#include "src/text/jinja/chat_template.h"

using namespace nibble;

namespace {

ChatTemplate load(const std::string& name) {
    const auto source =
        read_text_file(std::filesystem::path(NIBBLE_SOURCE_DIR) / "prompts" / (name + ".jinja"));
    REQUIRE(source.ok());
    auto t = ChatTemplate::parse(*source, name);
    REQUIRE_MESSAGE(t.ok(), (t.ok() ? "" : t.error().message()));
    return std::move(t).value();
}

ChatTemplate::Input conversation(bool with_system) {
    ChatTemplate::Input in;
    if (with_system) in.messages.push_back({{"role", "system"}, {"content", "Be kind."}});
    in.messages.push_back({{"role", "user"}, {"content", "Hi"}});
    in.messages.push_back({{"role", "assistant"}, {"content", "Hello!"}});
    in.messages.push_back({{"role", "user"}, {"content", "Bye"}});
    in.bos_token = "<s>";
    in.eos_token = "</s>";
    return in;
}

struct Expected {
    const char *name, *plain, *with_system;
};

const Expected expected[] = {
    {"chatml",
     "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|"
     ">\n"
     "<|im_start|>assistant\n",
     "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!"
     "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"},
    {"llama3",
     "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|"
     ">\n\n"
     "Hello!<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n",
     "<s><|start_header_id|>system<|end_header_id|>\n\nBe "
     "kind.<|eot_id|><|start_header_id|>user<|end_header_id|>"
     "\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
     "\n\n"},
    {"mistral", "<s>[INST] Hi[/INST] Hello!</s>[INST] Bye[/INST]",
     "<s>[INST] Be kind.\n\nHi[/INST] Hello!</s>[INST] Bye[/INST]"},
    {"gemma",
     "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n<start_of_turn>"
     "user\nBye"
     "<end_of_turn>\n<start_of_turn>model\n",
     "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n"
     "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"},
    {"phi", "<|user|>\nHi<|end|>\n<|assistant|>\nHello!<|end|>\n<|user|>\nBye<|end|>\n<|assistant|>\n",
     "<|system|>\nBe kind.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello!<|end|>\n<|user|>\nBye<|end|>\n"
     "<|assistant|>\n"},
    {"alpaca",
     "<s>Below is an instruction that describes a task. Write a response that appropriately completes the "
     "request.\n\n### Instruction:\nHi\n\n### Response:\nHello!</s>\n\n### Instruction:\nBye\n\n### "
     "Response:\n",
     "<s>Be kind.\n\n### Instruction:\nHi\n\n### Response:\nHello!</s>\n\n### Instruction:\nBye\n\n### "
     "Response:\n"},
    {"vicuna",
     "<s>A chat between a curious user and an artificial intelligence assistant. The assistant gives "
     "helpful, "
     "detailed, and polite answers to the user's questions. USER: Hi ASSISTANT: Hello!</s>USER: Bye "
     "ASSISTANT:",
     "<s>Be kind. USER: Hi ASSISTANT: Hello!</s>USER: Bye ASSISTANT:"},
    {"plain", "<s>User: Hi\n\nAssistant: Hello!\n\nUser: Bye\n\nAssistant:",
     "<s>Be kind.\n\nUser: Hi\n\nAssistant: Hello!\n\nUser: Bye\n\nAssistant:"},
};

}  // namespace

TEST_CASE("the named templates write their formats") {
    for (const Expected& e : expected) {
        CAPTURE(e.name);
        const ChatTemplate t = load(e.name);
        const auto plain = t.render(conversation(false));
        REQUIRE(plain.ok());
        CHECK(*plain == e.plain);
        const auto with_system = t.render(conversation(true));
        REQUIRE(with_system.ok());
        CHECK(*with_system == e.with_system);
    }
}

TEST_CASE("every file in prompts is tested, and contents are text while roles are template") {
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(NIBBLE_SOURCE_DIR "/prompts")) {
        const std::string name = entry.path().stem().string();
        CAPTURE(name);
        ++files;
        const auto segments = load(name).render_segments(conversation(true));
        REQUIRE(segments.ok());
        std::string text;
        for (const TemplateSegment& s : *segments) {
            if (!s.from_template) text += "<" + s.text + ">";
        }
        CHECK(text == "<Be kind.><Hi><Hello!><Bye>");
    }
    CHECK(files == std::size(expected));
}
