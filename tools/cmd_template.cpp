// nibble template: prints a conversation exactly as a chat template renders it, and nothing else.
// A template that refuses the conversation ends with its own message and exit code 1.
#include <cstdio>
#include <ctime>

#include <nlohmann/json.hpp>

#include "ggml/file/json.h"
#include "src/model/vocab_file.h"
#include "tools/standard_input.h"
#include "tools/template_option.h"

namespace nibble {
namespace {

struct TemplateCommand {
    ModelOption model;
    std::string name, conversation, now;
    Result<int> operator()() const;
    Result<ChatTemplate> load() const;
};

Result<ChatTemplate> TemplateCommand::load() const {
    if (!name.empty()) return named_template(name);
    const TensorFile file = NIBBLE_TRY(TensorFile::open(NIBBLE_TRY(model.path())));
    const Vocab vocab = NIBBLE_TRY(read_vocab(file));
    if (!vocab.chat_template)
        return Error{ErrorCode::not_found, file.path().string(), "carries no chat template",
                     "give one with --template"};
    return own_template(*vocab.chat_template, file.path());
}

// "2026-11-20T12:00:00" or "2026-11-20".
Result<std::tm> parse_time(const std::string& text) {
    std::tm t{};
    const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &t);
    if (!end) end = ::strptime(text.c_str(), "%Y-%m-%d", &(t = {}));
    const int day = t.tm_mday;
    t.tm_isdst = -1;
    std::mktime(&t);  // fills in the day of the week and of the year, and makes March of the 30th of February
    if (!end || *end || t.tm_mday != day)
        return Error{ErrorCode::invalid_argument, "--now", cat("'", text, "' is not a time"),
                     "write 2026-11-20T12:00:00"};
    return t;
}

Result<int> TemplateCommand::operator()() const {
    const ChatTemplate chat = NIBBLE_TRY(load());
    const std::string text = NIBBLE_TRY(read_input(conversation));
    const std::string where = input_name(conversation);
    if (nests_deeper(text)) return Error{ErrorCode::invalid_argument, where, "nests JSON too deeply", ""};
    const auto j = nlohmann::ordered_json::parse(text, nullptr, false);
    if (!j.is_object() || !j.contains("messages") || !j["messages"].is_array())
        return Error{ErrorCode::invalid_argument, where, "is not a JSON object with a list of messages",
                     "write {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}]}"};
    ChatTemplate::Input input;
    input.messages = j["messages"];
    const auto text_of = [&](const char* key) {
        return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
    };
    input.bos_token = text_of("bos_token");
    input.eos_token = text_of("eos_token");
    input.add_generation_prompt = !j.contains("add_generation_prompt") || j["add_generation_prompt"] == true;
    if (j.contains("tools")) input.tools = j["tools"];
    if (j.contains("chat_template_kwargs")) {  // as servers call them
        input.extra = j["chat_template_kwargs"];
        if (!input.extra.is_object() && !input.extra.is_null())
            return Error{ErrorCode::invalid_argument, where, "has chat_template_kwargs that are no object",
                         "write {\"enable_thinking\": false}"};
    }
    if (!now.empty()) input.now = NIBBLE_TRY(parse_time(now));
    auto rendered = chat.render(input);
    if (!rendered) {
        Error e = rendered.error();
        e.code = ErrorCode::corrupt;  // the command line was right: the template refuses
        return e;
    }
    std::fwrite(rendered->data(), 1, rendered->size(), stdout);
    return exit_ok;
}

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<TemplateCommand>();
    c->model.add(flags);
    flags.value("--template", c->name, "a name from prompts/ or a file, instead of the model's")
        .excludes("--model")
        .type_name("TEMPLATE");
    flags
        .value("--conversation", c->conversation,
               "JSON: messages, add_generation_prompt, bos_token, eos_token, tools, "
               "chat_template_kwargs; - is stdin")
        .required()
        .type_name("FILE");
    flags.value("--now", c->now, "the time that the template sees, e.g. 2026-11-20T12:00:00")
        .type_name("TIME");
    flags.examples(
        "  nibble template --conversation talk.json\n  nibble template --template llama3 "
        "--conversation - < talk.json");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command template_command;
const Command template_command{"template", "Show a conversation as a chat template renders it", setup};

}  // namespace nibble
