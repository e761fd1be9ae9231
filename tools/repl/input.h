// Lines from the user: editing, history, completion and pasting on a terminal (libedit); plain lines
// otherwise. A message may have several lines: a trailing \, a """ block, Ctrl-J, or a paste.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ggml/base/result.h"
#include "tools/repl/terminal.h"

namespace nibble {

struct Input {
    enum class Kind : uint8_t { message, interrupted, end } kind = Kind::end;
    std::string text;
    bool typed = false;                 // interrupted: there was something to discard
    std::optional<Error> failure = {};  // end: what could not be read
};

class ReplInput {
  public:
    // Given the line up to the cursor: where the word begins, and what it can become.
    struct Completions {
        size_t begin = 0;
        std::vector<std::string> words;
    };
    using Completer = std::function<Completions(const std::string&)>;

    // `history`: where lines are kept across runs, readable by the owner alone; empty: nowhere.
    ReplInput(const TerminalGuard& terminal, std::filesystem::path history, Completer completer);
    ~ReplInput();

    Input read();

  private:
    struct State;
    std::optional<std::string> line(bool more, Input& why);
    std::unique_ptr<State> state_;
};

// The user's editor on a text; nothing when it failed or there is none.
std::optional<std::string> edit_text(const TerminalGuard& terminal, const std::string& text);

// "$XDG_STATE_HOME/nibble/history", or below ~/.local/state; empty without a home.
std::filesystem::path history_path();

}  // namespace nibble
