// The commands of the chat: one table of name, aliases, arguments, help and function.
// A new command is one row in commands.cpp; /help and completion follow.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/repl/input.h"
#include "tools/repl/view.h"

namespace nibble {

// What a command may touch.
struct Repl {
    Chat& chat;
    ReplView& view;
    ReplInput& input;
    const TerminalGuard& terminal;
    bool& reading;                            // an answer has no text yet: see CpuOptions::stop
    Turn last{};                              // the last answer's figures
    std::string attachment{};                 // put before the next message, until one is answered
    std::vector<std::string> attached{};      // what was put before messages, each once
    bool answer_now = false;                  // set by a command: the last message is to be answered
    std::optional<Conversation> otherwise{};  // and the conversation if it cannot be
    bool leave = false;
    bool failed = false;  // a message had no answer, or a command could not be done

    void fail(const Error& error) {
        failed = true;
        view.notice(error.message());
    }
};

struct ReplCommand {
    std::string_view name, aliases, arguments, help;  // no arguments: further words are refused
    Result<void> (*run)(Repl& repl, const std::string& argument);
};

std::span<const ReplCommand> repl_commands();

// Runs "/name argument". Errors: an unknown name; words behind a command that takes none; what the command
// says.
Result<void> run_command_line(Repl& repl, const std::string& line);

// Commands, parameter keys after /set, template names, paths.
ReplInput::Completions complete_command(const std::string& before_cursor);

}  // namespace nibble
