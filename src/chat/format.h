// ChatFormat: a chat template bound to a tokenizer. Turns a conversation into the ids of a prompt and knows
// which text ends an answer.
#pragma once

#include "src/chat/conversation.h"
#include "src/text/jinja/chat_template.h"
#include "src/text/tokenizer.h"

namespace nibble {

struct RenderedPrompt {
    std::vector<TemplateSegment> segments;
    std::string text() const;
    bool opens_thinking() const;  // the template ends with "<think>": the answer begins inside it
};

class ChatFormat {
  public:
    // `own`: the template came with the model. One that did not is given a BOS only if the vocabulary adds
    // one. The tokenizer must outlive the format.
    ChatFormat(const Tokenizer& tokenizer, ChatTemplate chat, bool own);

    // Messages from `first` on, the system prompt, and the beginning of an answer. Errors: what the template
    // says when it refuses the conversation.
    Result<RenderedPrompt> render(const Conversation& c, size_t first = 0) const;
    std::vector<Token> encode(const RenderedPrompt& prompt) const;

    // What the template writes after an answer, where that is text to this model and no control token:
    // a model that was never trained on the format spells it out.
    const std::vector<std::string>& stops() const { return stops_; }
    const Tokenizer& tokenizer() const { return *tokenizer_; }
    const ChatTemplate& chat_template() const { return chat_; }
    bool own() const { return own_; }

  private:
    ChatTemplate::Input input(const Conversation& c, size_t first) const;
    std::vector<std::string> find_stops() const;

    const Tokenizer* tokenizer_;
    ChatTemplate chat_;
    bool own_;
    std::vector<std::string> stops_;
};

}  // namespace nibble
