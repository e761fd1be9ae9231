// Conversations as JSON: {"messages": [{"role", "content"}, ...]}, what `nibble template` reads too.
// A loaded file is input like any other: every field is checked.
#include "src/chat/conversation.h"

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "ggml/file/json.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t max_file = size_t{64} << 20, max_messages = 100'000;

}  // namespace

const Message* Conversation::last(std::string_view role) const {
    for (auto m = messages.rbegin(); m != messages.rend(); ++m)
        if (m->role == role) return &*m;
    return nullptr;
}

bool Conversation::undo() {
    if (!forget_answer()) return false;
    messages.pop_back();
    return true;
}

bool Conversation::forget_answer() {
    if (!last("user")) return false;
    while (messages.back().role != "user") messages.pop_back();
    return true;
}

nlohmann::ordered_json messages_json(const Conversation& c, size_t first) {
    Json list = Json::array();
    if (!c.system.empty()) list.push_back({{"role", "system"}, {"content", c.system}});
    for (size_t i = first; i < c.messages.size(); ++i)
        list.push_back({{"role", c.messages[i].role}, {"content", c.messages[i].content}});
    return list;
}

std::string conversation_text(const Conversation& c) {
    return Json{{"messages", messages_json(c)}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<void> save_conversation(const Conversation& c, const std::filesystem::path& path) {
    const std::string text = conversation_text(c);
    AtomicFile file = NIBBLE_TRY(AtomicFile::create(path));
    NIBBLE_TRY(file.write(std::as_bytes(std::span(text))));
    return file.commit();
}

Result<Conversation> load_conversation(const std::filesystem::path& path) {
    return parse_conversation(NIBBLE_TRY(read_text_file(path, max_file)), path.string());
}

Result<Conversation> parse_conversation(std::string_view text, const std::string& where) {
    if (nests_deeper(text)) return Error{ErrorCode::corrupt, where, "nests JSON too deeply", ""};
    const Json j = Json::parse(text, nullptr, false);
    const auto bad = [&](std::string what) {
        return Error{ErrorCode::corrupt, where, std::move(what),
                     "a conversation is {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, ...]}"};
    };
    if (!j.is_object() || !j.contains("messages") || !j["messages"].is_array())
        return bad("is not a JSON object with a list of messages");
    if (j["messages"].size() > max_messages)
        return bad(cat("has ", j["messages"].size(), " messages, at most ", max_messages, " are read"));
    Conversation c;
    size_t i = 0;
    for (const Json& m : j["messages"]) {
        ++i;
        const auto is_text = [&](const char* key) { return m.contains(key) && m[key].is_string(); };
        if (!m.is_object() || !is_text("role") || !is_text("content"))
            return bad(cat("message ", i, " has no role or no content"));
        const auto role = m["role"].get<std::string>(), content = m["content"].get<std::string>();
        if (role == "system" && i == 1)
            c.system = content;
        else if (role != "user" && role != "assistant")
            return bad(cat("message ", i, " has the role '", role.substr(0, 40), "'"));
        else if (c.messages.empty() && role != "user")
            return bad("does not begin with a message of the user");
        else
            c.messages.push_back({role, content});
    }
    return c;
}

}  // namespace nibble
