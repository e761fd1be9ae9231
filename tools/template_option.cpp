// Named templates lie in prompts/, beside the program or in the source tree.
// The fallback for a model without a template is guessed from the control tokens that it has.
#include "tools/template_option.h"

#include <algorithm>

#include "ggml/base/folder.h"
#include "ggml/base/mapped_file.h"

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

void TemplateOption::add(Flags& flags, const std::string& group) {
    flags.value("--template", given, "chat template: a name or a file [the model's]")
        .type_name("TEMPLATE")
        .group(group);
}

Result<ModelFormat> TemplateOption::format(const Tokenizer& tokenizer, const fs::path& model) const {
    const auto& own = tokenizer.vocab().chat_template;
    if (!given.empty()) return ModelFormat{{tokenizer, NIBBLE_TRY(named_template(given)), false}, ""};
    if (own) {
        auto parsed = own_template(*own, model);
        if (!parsed) {
            Error e = parsed.error();
            e.fix = cat("--template ", fallback_template(tokenizer), " does without the model's");
            return e;
        }
        return ModelFormat{{tokenizer, std::move(*parsed), true}, ""};
    }
    const std::string name = fallback_template(tokenizer);
    return ModelFormat{
        {tokenizer, NIBBLE_TRY(named_template(name)), false},
        cat("the model carries no chat template; '", name, "' is used (choose with --template)")};
}

}  // namespace nibble
