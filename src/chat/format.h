// ChatFormat: a chat template bound to a tokenizer. Turns a conversation into the ids of a prompt and knows
// which text ends an answer.
#pragma once

#include "src/chat/conversation.h"
#include "src/text/jinja/chat_template.h"
#include "src/text/tokenizer.h"

namespace nibble {

struct RenderedPrompt {
    std::vector<TemplateSegment> segments;
    bool opens_thinking = false;  // it ends with the mark of thoughts: the answer begins inside of them
    std::string text() const;
};

// Whether and how much a model thinks before it answers.
struct Thinking {
    enum class Mode : uint8_t { as_template, on, off };
    Mode mode = Mode::as_template;
    std::string effort;  // in the template's words, e.g. low; empty: as it has it
};

class ChatFormat {
  public:
    // `own`: the template came with the model. One that did not is given a BOS only if the vocabulary adds
    // one. The tokenizer must outlive the format.
    // `variables`: more that the template sees, by name; null for none.
    ChatFormat(const Tokenizer& tokenizer, ChatTemplate chat, bool own,
               nlohmann::ordered_json variables = nullptr);

    // By the template's own switch where it has one. Off where it has none: thoughts that the template would
    // begin are closed, or the answer is begun. False: it changes nothing, as far as the template goes.
    bool set_thinking(Thinking thinking);

    // Messages from `first` on, the system prompt, and the beginning of an answer. A family with marks of its
    // own gets the thoughts of former answers apart, not as text. Errors: what the template says when it
    // refuses the conversation.
    Result<RenderedPrompt> render(const Conversation& c, size_t first = 0) const;
    std::vector<Token> encode(const RenderedPrompt& prompt) const;

    // What the template writes after an answer, where that is text to this model and no control token:
    // a model that was never trained on the format spells it out.
    const std::vector<std::string>& stops() const { return stops_; }
    // Likewise where it is a control token that the model's file does not name among its ends.
    const std::vector<Token>& stop_tokens() const { return stop_tokens_; }
    const Tokenizer& tokenizer() const { return *tokenizer_; }
    const ChatTemplate& chat_template() const { return chat_; }
    bool own() const { return own_; }
    const nlohmann::ordered_json& variables() const { return variables_; }
    const Thinking& thinking() const { return thinking_; }

  private:
    ChatTemplate::Input input(const Conversation& c, size_t first) const;
    void separate_thoughts(nlohmann::ordered_json& messages) const;
    std::string_view closing_mark(const RenderedPrompt& prompt) const;
    void answer_directly(RenderedPrompt& prompt) const;
    void find_stops();

    const Tokenizer* tokenizer_;
    ChatTemplate chat_;
    bool own_;
    nlohmann::ordered_json variables_;
    Thinking thinking_;
    std::vector<std::string> stops_;
    std::vector<Token> stop_tokens_;
};

}  // namespace nibble
