// `--template`, and the chat format that a model gets: its own template, the one asked for, or a named
// fallback with a warning.
#pragma once

#include "src/chat/format.h"
#include "tools/options.h"

namespace nibble {

// A file, or the name of a template that comes with the program.
Result<ChatTemplate> named_template(const std::string& name);
// The template that a model's file carries. Its faults are the file's, not what the user wrote.
Result<ChatTemplate> own_template(const std::string& source, const std::filesystem::path& model);
Result<std::string> template_text(const std::string& name);
// The name of the one that a model without a template gets.
std::string fallback_template(const Tokenizer& tokenizer);
std::vector<std::string> template_names();

// The words that --think takes, a switch or an effort, and what one means.
std::span<const std::string_view> thinking_words();
Result<Thinking> find_thinking(std::string_view think);

struct ModelFormat {
    ChatFormat format;
    std::vector<std::string> warnings;
};

struct TemplateOption {
    std::string given;
    Thinking thinking;
    nlohmann::ordered_json variables;  // null: none
    void add(Flags& flags, const std::string& group);
    // For a model's file and its tokenizer, which must outlive the format.
    Result<ModelFormat> format(const Tokenizer& tokenizer, const std::filesystem::path& model) const;
};

}  // namespace nibble
