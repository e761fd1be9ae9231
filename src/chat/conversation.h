// A conversation: a system prompt and messages by turns, as plain data; and its JSON file.
// Knows neither models nor terminals.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "ggml/base/result.h"

namespace nibble {

struct Message {
    std::string role, content;  // "user" or "assistant"
    bool operator==(const Message&) const = default;
};

struct Conversation {
    std::string system;             // empty: none
    std::vector<Message> messages;  // begins with a user's

    bool empty() const { return messages.empty(); }
    // The last message of a role; null: none.
    const Message* last(std::string_view role) const;
    // Removes the last turn: the user's message and what followed. False: there was none.
    bool undo();
    // Removes what came after the user's last message, so that it can be answered again. False: there is
    // none.
    bool forget_answer();

    bool operator==(const Conversation&) const = default;
};

// The messages as chat templates want them, the system prompt first; `first` leaves out older ones.
nlohmann::ordered_json messages_json(const Conversation& c, size_t first = 0);

// The JSON of the file. Errors name `where` and the message.
std::string conversation_text(const Conversation& c);
Result<Conversation> parse_conversation(std::string_view text, const std::string& where);

// The file appears only when it is complete. Bytes that are not UTF-8 are saved as U+FFFD.
Result<void> save_conversation(const Conversation& c, const std::filesystem::path& path);
// Errors name the file and the message. Limits: 64 MiB, 100,000 messages.
Result<Conversation> load_conversation(const std::filesystem::path& path);

}  // namespace nibble
