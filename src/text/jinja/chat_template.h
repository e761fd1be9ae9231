// A model's chat template: turns a conversation into the exact text the model was trained on, and says which
// parts of that text the template wrote and which came from outside.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ggml/base/result.h"
#include "src/text/jinja/budget.h"
#include "src/text/segment.h"

namespace nibble {

namespace jinja {
struct Program;
}

class ChatTemplate {
  public:
    struct Input {
        nlohmann::ordered_json messages = nlohmann::ordered_json::array();
        nlohmann::ordered_json tools;  // null: the template sees none
        // More variables, e.g. {"enable_thinking": false}; null for none. They replace those of the same
        // name.
        nlohmann::ordered_json extra;
        bool add_generation_prompt = true;
        std::string bos_token, eos_token;
        std::optional<std::tm> now;  // local time for strftime_now; the clock when absent
    };

    // `name` opens every error ("name:line"). A template that uses an unknown tag, filter or test is refused.
    static Result<ChatTemplate> parse(std::string source, std::string name, const jinja::Limits& limits = {});

    // The exact text that transformers' apply_chat_template gives. A template that refuses the conversation
    // (raise_exception) gives its message as Error::what.
    Result<std::string> render(const Input& input) const;

    // The same text in pieces. Everything that came from messages, tools or extra is marked as not from the
    // template, through every operation on strings. The one exception are the roles of messages: system,
    // user, assistant, developer, tool, function and ipython count as the template's own words, because
    // templates make control tokens of them ("<|" + role + "|>"); any other role is text.
    Result<std::vector<TemplateSegment>> render_segments(const Input& input) const;

    const std::string& source() const { return source_; }
    const std::string& name() const { return name_; }
    // Whether the template mentions a variable, e.g. "tools", "enable_thinking" or "bos_token".
    bool mentions(std::string_view variable) const;

  private:
    ChatTemplate() = default;
    std::string source_, name_;
    jinja::Limits limits_;
    std::shared_ptr<const jinja::Program> program_;
};

}  // namespace nibble
