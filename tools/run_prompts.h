// What `nibble run` is to answer: prompts from flags, arguments, files and standard input.
// Nothing is read from a terminal.
#pragma once

#include <optional>

#include "src/chat/conversation.h"
#include "tools/options.h"

namespace nibble {

struct PromptSource {
    std::string prompt, file, prompts, system;
    std::vector<std::string> words;
    void add(Flags& flags);

    // At least one conversation, each ending with a user's message. -p or the words, then -f or what is piped
    // in, with an empty line between and without a final line break. Errors name the flag, or the file and
    // line.
    Result<std::vector<Conversation>> read() const;
    std::string instruction() const;  // -p or the words: what a document follows

  private:
    Result<Conversation> one() const;
    Result<std::vector<Conversation>> many() const;
};

}  // namespace nibble
