// Prompts: instruction and document joined; or a file with one prompt a line, or one JSON object a line.
// Standard input counts as a document when it is a pipe or a file; /dev/null and terminals do not.
#include "tools/run_prompts.h"

#include <algorithm>

#include <sys/stat.h>
#include <unistd.h>

#include "ggml/file/json.h"
#include "src/text/utf8.h"
#include "tools/standard_input.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

bool is_piped(int fd) {
    struct stat s {};
    return ::fstat(fd, &s) == 0 && (S_ISFIFO(s.st_mode) || S_ISREG(s.st_mode) || S_ISSOCK(s.st_mode));
}

Error bad_line(const std::string& file, size_t line, std::string what) {
    return {ErrorCode::invalid_argument, cat(input_name(file), " line ", line), std::move(what),
            "write {\"prompt\": \"...\"} or {\"messages\": [...]}"};
}

constexpr std::string_view known_keys[] = {"prompt", "system", "messages"};

// Other text in braces may be a prompt.
bool begins_as_ours(std::string line) {
    std::erase_if(line, [](char c) { return c == ' ' || c == '\t'; });
    return std::ranges::any_of(known_keys,
                               [&](std::string_view k) { return line.starts_with(cat("{\"", k, "\":")); });
}

// {"prompt": text, "system": text} or {"messages": [{"role", "content"}, ...]}.
Result<Conversation> from_json(const std::string& file, size_t line, const Json& j, std::string system) {
    const auto text = [](const Json& o, const char* key) -> const std::string* {
        return o.is_object() && o.contains(key) && o[key].is_string() ? &o[key].get_ref<const std::string&>()
                                                                      : nullptr;
    };
    for (const auto& [key, value] : j.items())
        if (std::ranges::find(known_keys, key) == std::end(known_keys))
            return bad_line(file, line, cat("has '", key.substr(0, 40), "', which is not known here"));
    for (const char* key : {"prompt", "system"})
        if (j.contains(key) && !j[key].is_string())
            return bad_line(file, line, cat("has a '", key, "' that is no text"));
    if (j.contains("messages") && !j["messages"].is_array())
        return bad_line(file, line, "has 'messages' that are no list");
    if (j.contains("prompt") && j.contains("messages"))
        return bad_line(file, line, "has both 'prompt' and 'messages'");
    Conversation c{std::move(system), {}};
    if (const auto* s = text(j, "system")) c.system = *s;
    if (const auto* p = text(j, "prompt")) c.messages.push_back({"user", *p});
    if (j.contains("messages"))
        for (const Json& m : j["messages"]) {
            const auto *role = text(m, "role"), *content = text(m, "content");
            if (!role || !content) return bad_line(file, line, "has a message without role or content");
            if (*role == "system")
                c.system = *content;
            else if (*role == "user" || *role == "assistant")
                c.messages.push_back({*role, *content});
            else
                return bad_line(file, line, cat("has the role '", role->substr(0, 40), "'"));
        }
    if (c.messages.empty() || c.messages.back().role != "user" || c.messages.back().content.empty())
        return bad_line(file, line, "has no prompt");
    return c;
}

}  // namespace

void PromptSource::add(Flags& flags) {
    const std::string group = "Prompt";
    const Flag positional = flags.value("prompt", words, "the prompt").every();
    flags.value("-p,--prompt", prompt, "the prompt; a file or piped text is added").group(group);
    flags.value("-f,--file", file, "read the prompt from a file; - is stdin").type_name("FILE").group(group);
    flags.value("--prompts", prompts, "answer every line of a file (text or JSON)")
        .type_name("FILE")
        .excludes("--prompt")
        .excludes("--file")
        .excludes(positional)
        .group(group);
    flags.value("--system", system, "the system prompt of a chat").group(group);
}

std::string PromptSource::instruction() const {
    std::string text = prompt;
    for (const std::string& w : words) text += cat(text.empty() ? "" : " ", w);
    return text;
}

Result<Conversation> PromptSource::one() const {
    std::string text = instruction();
    const auto add = [&](const std::string& whole) {
        std::string_view document = without_byte_order_mark(whole);
        if (document.ends_with('\n'))
            document.remove_suffix(1);  // as $(...) does: it ends the line, not the text
        if (document.ends_with('\r')) document.remove_suffix(1);
        if (!text.empty() && !document.empty()) text += "\n\n";
        text += document;
    };
    if (!file.empty()) add(NIBBLE_TRY(read_input(file)));
    if (file != "-" && is_piped(STDIN_FILENO)) add(NIBBLE_TRY(read_input("-")));
    if (text.empty())
        return Error{ErrorCode::invalid_argument, "prompt", "is missing",
                     "give -p TEXT, -f FILE or pipe it in"};
    return Conversation{system, {{"user", text}}};
}

Result<std::vector<Conversation>> PromptSource::many() const {
    const std::string whole = NIBBLE_TRY(read_input(prompts));
    const std::string_view text = without_byte_order_mark(whole);
    std::vector<Conversation> list;
    size_t number = 0, plain = 0;  // lines; the first that is text
    bool has_json = prompts.ends_with(".jsonl");
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        std::string line(text.substr(at, end - at));
        at = end + 1;
        ++number;
        if (line.ends_with('\r')) line.pop_back();
        const size_t first = line.find_first_not_of(" \t");
        if (first == std::string::npos) continue;
        const bool may_be_json = line[first] == '{' || line[first] == '[';
        if (may_be_json && nests_deeper(line)) return bad_line(prompts, number, "nests JSON too deeply");
        const Json j = may_be_json ? Json::parse(line, nullptr, false) : Json();
        if (j.is_array() && !j.empty() && j[0].is_object())
            return bad_line(prompts, number, "is a JSON array; give one object per line");
        if (j.is_object()) {
            list.push_back(NIBBLE_TRY(from_json(prompts, number, j, system)));
            has_json = true;
        } else if (j.is_discarded() && begins_as_ours(line)) {
            return bad_line(prompts, number, "begins as a JSON object and is none");
        } else {
            if (plain == 0) plain = number;
            list.push_back({system, {{"user", line}}});
        }
        if (has_json && plain) return bad_line(prompts, plain, "is not a JSON object");
    }
    if (list.empty())
        return Error{ErrorCode::invalid_argument, input_name(prompts), "holds no prompt",
                     "give a prompt a line, or an object with \"prompt\" or \"messages\""};
    return list;
}

Result<std::vector<Conversation>> PromptSource::read() const {
    if (!prompts.empty()) return many();
    return std::vector<Conversation>{NIBBLE_TRY(one())};
}

}  // namespace nibble
