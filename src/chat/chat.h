// Chat: a conversation with a model. Renders it, keeps it within the context, and streams the answer.
// No terminal: the caller's hooks show text and notices and say when to stop.
#pragma once

#include <functional>
#include <optional>

#include "src/chat/format.h"
#include "src/engine/engine.h"

namespace nibble {

// What happens when the conversation does not fit the context.
enum class Overflow : uint8_t {
    stop,   // an Error with both numbers
    drop,   // the oldest turns are left out whole, before an answer begins
    shift,  // also in mid-answer, which then goes on
};
std::string_view name(Overflow policy);
Result<Overflow> find_overflow(std::string_view name);

struct ChatOptions {
    SamplerParams sampling;
    int64_t max_tokens = -1;        // of an answer
    std::vector<std::string> stop;  // besides the template's own
    Overflow overflow = Overflow::drop;
};

struct ChatHooks {
    std::function<void(std::string_view)> text;      // a part of the answer, as soon as it is certain
    std::function<void(const std::string&)> notice;  // one line for the user
    std::function<bool()> interrupted;               // true: stop the answer, keep what came
    std::function<void(int32_t read, int32_t left)> reading{};  // of the prompt, while it takes several steps
};

struct Turn {
    std::string text;
    Finish finish = Finish::none;
    int32_t prompt_tokens = 0;   // the whole prompt
    int32_t prefill_tokens = 0;  // of it, computed now; the rest was in the cache
    int32_t generated = 0;
    int32_t guessed = 0;  // of the generated, see EngineConfig::draft_tokens
    int32_t context_used = 0;
    double prefill_seconds = 0, decode_seconds = 0;
};

// What a chat knows beside its options: enough to go on later as if nothing had happened.
struct ChatState {
    Conversation conversation;
    uint64_t first = 0;         // the oldest message that is sent
    uint64_t stream = 0;        // of the random numbers of the next answer
    std::string text;           // the last prompt and answer as the model saw them
    std::vector<Token> tokens;  // of the text
};

class Chat {
  public:
    // The engine must outlive the chat and be used by it alone while an answer runs.
    Chat(Engine& engine, ChatFormat format, ChatOptions options);

    Conversation conversation;
    ChatOptions options;
    const ChatFormat& format() const { return format_; }
    void set_format(ChatFormat format);
    Engine& engine() { return *engine_; }

    // Appends the user's message and answers it. On an Error the message is taken back.
    Result<Turn> say(std::string message, const ChatHooks& hooks);
    // Answers the user's last message (again). On an Error the conversation is as it was.
    Result<Turn> answer(const ChatHooks& hooks);

    // Another conversation takes the place of this one: none of it is left out, and its random numbers are
    // those of a new chat.
    void begin(Conversation other);
    void restart_random_numbers() { stream_ = 0; }
    ChatState state() const;
    void restore(ChatState state);

    // The prompt that an answer would have now, without the messages that it would leave out.
    Result<std::vector<Token>> prompt_tokens();
    // The most likely first tokens of the next answer.
    Result<std::vector<TokenLogprob>> next_tokens(int32_t n);
    // Messages at the beginning that no longer fit and are not sent.
    size_t left_out() const { return sent_.first; }

  private:
    struct Prompt {
        std::string text;
        std::vector<Token> tokens;
        bool opens_thinking = false;
    };
    Result<Turn> answer_last(const ChatHooks& hooks);
    Result<Prompt> make_prompt();
    Result<Prompt> shortened();  // moves sent_
    Result<Prompt> fit(const ChatHooks& hooks);
    void look_back();
    std::optional<size_t> second_turn() const;
    bool drop_oldest_turn();
    Request request_for(const Prompt& prompt, const std::vector<Token>& generated);
    // Runs one request to its end. Yields true when it was ended to make room (Overflow::shift).
    Result<bool> run(Request request, const ChatHooks& hooks, Turn& turn, std::vector<Token>& generated);
    int32_t reserve() const;

    Engine* engine_;
    ChatFormat format_;
    struct Sent {
        size_t first = 0;     // the oldest message that is sent
        size_t answered = 0;  // messages there were after the last answer: with fewer, all may fit again
    } sent_;
    uint64_t stream_ = 0;
    // The last prompt and answer as the model saw them. Text does not say which of several spellings in
    // tokens the model chose, and the cache holds that one.
    std::string known_text_;
    std::vector<Token> known_tokens_;
};

}  // namespace nibble
