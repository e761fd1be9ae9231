// Named templates lie in prompts/, beside the program or in the source tree.
// The fallback for a model without a template is guessed from the control tokens that it has.
#include "tools/template_option.h"

#include <algorithm>

#include "ggml/base/folder.h"
#include "ggml/base/mapped_file.h"
#include "ggml/file/json.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

struct Sign {
    std::string_view token, fallback;
};
constexpr Sign signs[] = {{"<|im_start|>", "chatml"},
                          {"<|start_header_id|>", "llama3"},
                          {"<start_of_turn>", "gemma"},
                          {"<|assistant|>", "phi"},
                          {"[INST]", "mistral"}};

}  // namespace

std::string fallback_template(const Tokenizer& tokenizer) {
    for (const Sign& s : signs)
        if (const auto id = tokenizer.find(s.token); id && tokenizer.is_control(*id))
            return std::string(s.fallback);
    return "plain";
}

std::vector<std::string> template_names() {
    std::vector<std::string> names;
    std::error_code ec;
    for (const fs::path& folder : data_folders("prompts", NIBBLE_SOURCE_PROMPTS))
        for (const fs::path& entry : folder_entries(folder, ec)) {
            const std::string name = entry.stem().string();
            if (entry.extension() == ".jinja" && std::ranges::find(names, name) == names.end())
                names.push_back(name);
        }
    std::ranges::sort(names);
    return names;
}

Result<std::string> template_text(const std::string& name) {
    std::error_code ec;
    if (fs::is_regular_file(name, ec)) return read_text_file(name);
    if (name.find_first_of("/.") == std::string::npos)
        for (const fs::path& folder : data_folders("prompts", NIBBLE_SOURCE_PROMPTS))
            if (const fs::path file = folder / (name + ".jinja"); fs::is_regular_file(file, ec))
                return read_text_file(file);
    std::string known;
    for (const std::string& n : template_names()) known += cat(known.empty() ? "" : ", ", n);
    return Error{ErrorCode::not_found, "--template", cat("'", name, "' is neither a file nor a known name"),
                 cat("known are ", known)};
}

Result<ChatTemplate> named_template(const std::string& name) {
    return ChatTemplate::parse(NIBBLE_TRY(template_text(name)), name);
}

Result<ChatTemplate> own_template(const std::string& source, const fs::path& model) {
    auto parsed = ChatTemplate::parse(source, cat(model.string(), ": chat template"));
    if (parsed) return parsed;
    return Error{ErrorCode::corrupt, parsed.error().where, parsed.error().what,
                 "--template does without the model's"};
}

std::span<const std::string_view> thinking_words() {
    static constexpr std::string_view words[] = {"on", "off", "minimal", "low", "medium", "high", "max"};
    return words;
}

Result<Thinking> find_thinking(std::string_view think) {
    if (std::ranges::find(thinking_words(), think) == thinking_words().end())
        return Error{ErrorCode::invalid_argument, "--think",
                     cat("'", think, "' is neither a switch nor an effort"),
                     cat("use one of ", joined(thinking_words(), ", "))};
    if (think == "off") return Thinking{Thinking::Mode::off, {}};
    return Thinking{Thinking::Mode::on, std::string(think == "on" ? "" : think)};
}

namespace {

// NAME=VALUE; a value that is no JSON is text.
Result<void> set_variable(nlohmann::ordered_json& variables, const std::string& given) {
    const size_t at = given.find('=');
    if (at == std::string::npos || at == 0)
        return Error{ErrorCode::invalid_argument, "--template-set", cat("'", given, "' sets nothing"),
                     "write NAME=VALUE, e.g. enable_thinking=false"};
    const std::string value = given.substr(at + 1);
    nlohmann::ordered_json json = value;
    if (!nests_deeper(value))
        if (auto parsed = nlohmann::ordered_json::parse(value, nullptr, false); !parsed.is_discarded())
            json = std::move(parsed);
    variables[given.substr(0, at)] = std::move(json);
    return {};
}

// What to say where --think changes nothing.
std::string no_switch(const Tokenizer& tokenizer, const Thinking& thinking) {
    const bool may_think = tokenizer.thought_tokens() || tokenizer.find(think_open);
    if (thinking.mode == Thinking::Mode::off && !may_think) return {};  // as asked for
    return thinking.effort.empty() ? "--think: the chat template has no switch for thoughts"
                                   : "--think: the chat template knows no effort, just on or off at most";
}

}  // namespace

void TemplateOption::add(Flags& flags, const std::string& group) {
    const std::string more = "More about the template";
    flags.value("--template", given, "chat template: a name or a file [the model's]")
        .type_name("TEMPLATE")
        .group(more);
    flags
        .each_checked(
            "--think",
            [this](const std::string& text) -> Result<void> {
                thinking = NIBBLE_TRY(find_thinking(text));
                return {};
            },
            "thoughts first")
        .type_name(joined(thinking_words(), "|"))
        .group(group);
    flags
        .all_checked(
            "--template-set", [this](const std::string& text) { return set_variable(variables, text); },
            "a variable of the template, JSON or text; may be repeated")
        .type_name("NAME=VALUE")
        .group(more);
}

Result<ModelFormat> TemplateOption::format(const Tokenizer& tokenizer, const fs::path& model) const {
    const auto& own = tokenizer.vocab().chat_template;
    const std::string fallback = fallback_template(tokenizer);
    auto chat = !given.empty() ? named_template(given)
                : own          ? own_template(*own, model)
                               : named_template(fallback);
    if (!chat && given.empty() && own) {
        Error e = std::move(chat).error();
        e.fix = cat("--template ", fallback, " does without the model's");
        return e;
    }
    const bool is_own = own && given.empty();
    ModelFormat f{{tokenizer, NIBBLE_TRY(std::move(chat)), is_own, variables}, {}};
    if (!own && given.empty())
        f.warnings.push_back(
            cat("the model carries no chat template; '", fallback, "' is used (choose with --template)"));
    if (thinking.mode != Thinking::Mode::as_template && !f.format.set_thinking(thinking))
        if (std::string text = no_switch(tokenizer, thinking); !text.empty())
            f.warnings.push_back(std::move(text));
    return f;
}

}  // namespace nibble
