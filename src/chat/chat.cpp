// Answers: prompt from the conversation, fitted to the context; then steps of the engine until it ends.
// Keys and values of the unchanged beginning are reused by the engine, which compares tokens.
#include "src/chat/chat.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "ggml/base/cat.h"

namespace nibble {
namespace {

constexpr std::array<std::string_view, 3> overflow_names = {"stop", "drop", "shift"};
// Tokens that remain when an answer makes room for itself: a character may still be incomplete.
constexpr int32_t shift_margin = 8;

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

Error too_long(size_t n, int32_t ctx) {
    return {ErrorCode::invalid_argument, "conversation",
            cat("has ", n, " tokens, the context holds ", ctx, " including the answer"),
            "shorten the message, give a larger --ctx or begin anew"};
}

}  // namespace

std::string_view name(Overflow policy) { return overflow_names[static_cast<size_t>(policy)]; }

Result<Overflow> find_overflow(std::string_view text) {
    const auto it = std::ranges::find(overflow_names, text);
    if (it == overflow_names.end())
        return Error{ErrorCode::invalid_argument, "--context-overflow", cat("'", text, "' is not a policy"),
                     "use drop, stop or shift"};
    return static_cast<Overflow>(it - overflow_names.begin());
}

Chat::Chat(Engine& engine, ChatFormat format, ChatOptions o)
    : options(std::move(o)), engine_(&engine), format_(std::move(format)) {}

void Chat::set_format(ChatFormat format) { format_ = std::move(format); }

int32_t Chat::reserve() const {
    const int32_t ctx = engine_->ctx();
    const auto wanted = options.max_tokens >= 0 ? options.max_tokens : int64_t{ctx} / 4;
    return static_cast<int32_t>(std::clamp<int64_t>(wanted, 1, std::max(1, ctx / 2)));
}

Result<Chat::Prompt> Chat::make_prompt() {
    const RenderedPrompt rendered = NIBBLE_TRY(format_.render(conversation, sent_.first));
    Prompt p{rendered.text(), {}, rendered.opens_thinking};
    // Behind what the model has seen comes a control token in the usual case: then nothing merges across.
    if (!known_text_.empty() && p.text.starts_with(known_text_)) {
        std::vector<TemplateSegment> rest;
        size_t skip = known_text_.size();
        for (const TemplateSegment& s : rendered.segments) {
            const size_t n = std::min(skip, s.text.size());
            skip -= n;
            if (n < s.text.size()) rest.push_back({s.text.substr(n), s.from_template});
        }
        const std::vector<Token> more = format_.tokenizer().encode(rest);
        if (!more.empty() && format_.tokenizer().is_control(more.front())) {
            p.tokens = known_tokens_;
            p.tokens.insert(p.tokens.end(), more.begin(), more.end());
            return p;
        }
    }
    p.tokens = format_.encode(rendered);
    return p;
}

// An older state of the conversation may fit whole.
void Chat::look_back() {
    const size_t n = conversation.messages.size();
    if (n < sent_.answered || n <= sent_.first) sent_ = {};
}

// A turn ends before the next message of the user; the last one always stays. No message: nothing to drop.
std::optional<size_t> Chat::second_turn() const {
    for (size_t i = sent_.first + 1; i < conversation.messages.size(); ++i)
        if (conversation.messages[i].role == "user") return i;
    return {};
}

bool Chat::drop_oldest_turn() {
    const std::optional<size_t> next = second_turn();
    if (next) sent_.first = *next;
    return next.has_value();
}

// Leaves out what does not fit, as far as the options allow.
Result<Chat::Prompt> Chat::shortened() {
    look_back();
    Prompt prompt = NIBBLE_TRY(make_prompt());
    const auto fits = [&] {
        return static_cast<int64_t>(prompt.tokens.size()) + reserve() <= engine_->ctx();
    };
    if (options.overflow != Overflow::stop)
        while (!fits() && drop_oldest_turn()) prompt = NIBBLE_TRY(make_prompt());
    return prompt;
}

Result<std::vector<Token>> Chat::prompt_tokens() {
    const Sent before = sent_;  // the user is told of what is left out when a message leaves it out
    auto prompt = shortened();
    sent_ = before;
    return NIBBLE_TRY(std::move(prompt)).tokens;
}

Result<Chat::Prompt> Chat::fit(const ChatHooks& hooks) {
    const int32_t ctx = engine_->ctx();
    const size_t was = sent_.first;
    Prompt prompt = NIBBLE_TRY(shortened());
    if (static_cast<int64_t>(prompt.tokens.size()) + 1 > ctx) return too_long(prompt.tokens.size(), ctx);
    if (sent_.first != was && sent_.first > 0 && hooks.notice) {
        const auto whole = format_.render(conversation, 0);
        const std::string size = whole ? cat(" of ", format_.encode(*whole).size(), " tokens") : "";
        hooks.notice(cat("the conversation", size, ", with ", reserve(),
                         " for the answer, does not fit the context of ", ctx, ": ", sent_.first, " of ",
                         conversation.messages.size(), " messages are left out, the oldest"));
    }
    return prompt;
}

Request Chat::request_for(const Prompt& prompt, const std::vector<Token>& generated) {
    Request r;
    r.prompt = prompt.tokens;
    r.prompt.insert(r.prompt.end(), generated.begin(), generated.end());
    r.begun = generated.size();
    r.sampling = options.sampling;
    r.max_tokens = options.max_tokens < 0
                       ? -1
                       : std::max<int64_t>(0, options.max_tokens - static_cast<int64_t>(generated.size()));
    r.stop = options.stop;
    r.stop.insert(r.stop.end(), format_.stops().begin(), format_.stops().end());
    r.stop_tokens = format_.stop_tokens();
    r.stream = stream_++;
    return r;
}

Result<bool> Chat::run(Request request, const ChatHooks& hooks, Turn& turn, std::vector<Token>& generated) {
    auto used = static_cast<int32_t>(request.prompt.size());
    const int32_t unread = hooks.reading ? used - engine_->known(request.prompt) : 0;
    const RequestId id = NIBBLE_TRY(engine_->submit(std::move(request)));
    const Clock::time_point start = Clock::now();
    double first = -1;
    bool make_room = false;
    if (unread > engine_->runner().config().batch_tokens) hooks.reading(0, unread);
    for (turn.finish = Finish::none; turn.finish == Finish::none;) {
        if (make_room || (hooks.interrupted && hooks.interrupted())) engine_->cancel(id);
        const StepReport report = NIBBLE_TRY(engine_->step());
        turn.prefill_tokens += report.prefill_tokens;
        for (const Event& e : report.events) {
            if (e.request != id) continue;
            if (make_room) {  // what came behind is drawn again, with room
                if (e.finish != Finish::none) turn.finish = Finish::cancelled;
                continue;
            }
            if (e.token >= 0) {
                generated.push_back(e.token);
                turn.guessed += e.guessed ? 1 : 0;
                ++used;
                if (first < 0) first = since(start);
            }
            turn.text += e.text;
            if (hooks.text && !e.text.empty()) hooks.text(e.text);
            turn.finish = e.finish;
            // What is held back would be lost to the request that goes on.
            if (options.overflow == Overflow::shift && !e.text.empty() && !e.text_held &&
                used + shift_margin >= engine_->ctx() && second_turn())
                make_room = true;
        }
        if (hooks.reading && first < 0 && report.prefill_left > 0)
            hooks.reading(turn.prefill_tokens, report.prefill_left);
    }
    if (first < 0) first = since(start);
    turn.prefill_seconds += first;
    turn.decode_seconds += since(start) - first;
    turn.context_used = used;
    return make_room && turn.finish == Finish::cancelled;
}

Result<Turn> Chat::answer(const ChatHooks& hooks) {
    Conversation kept = conversation;
    const Sent sent = sent_;
    auto turn = answer_last(hooks);
    if (turn) return turn;
    conversation = std::move(kept);
    sent_ = sent;
    return turn;
}

Result<Turn> Chat::answer_last(const ChatHooks& hooks) {
    if (!conversation.forget_answer())
        return Error{ErrorCode::invalid_argument, "conversation", "has no message to answer", ""};
    Prompt prompt = NIBBLE_TRY(fit(hooks));
    Turn turn;
    turn.prompt_tokens = static_cast<int32_t>(prompt.tokens.size());
    if (prompt.opens_thinking) {  // belongs to the answer for whoever shows or renders it
        turn.text = cat(think_open, "\n");
        if (hooks.text) hooks.text(turn.text);
    }
    std::vector<Token> generated;
    while (NIBBLE_TRY(run(request_for(prompt, generated), hooks, turn, generated))) {
        if (hooks.interrupted && hooks.interrupted()) break;
        if (!drop_oldest_turn()) {
            turn.finish = Finish::context;
            break;
        }
        prompt = NIBBLE_TRY(make_prompt());
        if (hooks.notice)
            hooks.notice(cat("the context is full: the oldest ", sent_.first, " messages are left out"));
    }
    if (turn.finish == Finish::context && hooks.notice)
        hooks.notice(cat("the context of ", engine_->ctx(), " tokens is full: the answer ends here"));
    turn.generated = static_cast<int32_t>(generated.size());
    conversation.messages.push_back({"assistant", turn.text});
    sent_.answered = conversation.messages.size();

    if (!generated.empty() && turn.finish == Finish::eos) generated.pop_back();  // the token that ended it
    std::string spelled;
    for (const Token t : generated) spelled += format_.tokenizer().piece(t);
    known_text_.clear();
    known_tokens_ = prompt.tokens;
    if (!prompt.opens_thinking && spelled == turn.text) {
        known_text_ = prompt.text + spelled;
        known_tokens_.insert(known_tokens_.end(), generated.begin(), generated.end());
    }
    return turn;
}

void Chat::begin(Conversation other) {
    conversation = std::move(other);
    sent_ = {};
    stream_ = 0;
}

ChatState Chat::state() const { return {conversation, sent_.first, stream_, known_text_, known_tokens_}; }

void Chat::restore(ChatState s) {
    conversation = std::move(s.conversation);
    sent_.first = static_cast<size_t>(s.first);
    sent_.answered = conversation.messages.size();
    stream_ = s.stream;
    known_text_ = std::move(s.text);
    known_tokens_ = std::move(s.tokens);
}

Result<Turn> Chat::say(std::string message, const ChatHooks& hooks) {
    conversation.messages.push_back({"user", std::move(message)});
    auto turn = answer(hooks);
    if (!turn) conversation.undo();
    return turn;
}

Result<std::vector<TokenLogprob>> Chat::next_tokens(int32_t n) {
    Conversation kept = conversation;
    const Sent sent = sent_;
    conversation.forget_answer();
    auto prompt = fit({});
    conversation = std::move(kept);
    sent_ = sent;
    if (!prompt) return std::move(prompt).error();
    Request r = request_for(*prompt, {});
    --stream_;  // nothing is drawn that the conversation keeps
    r.max_tokens = 1;
    r.logprobs = n;
    const RequestId id = NIBBLE_TRY(engine_->submit(std::move(r)));
    std::vector<TokenLogprob> top;
    while (!engine_->idle())
        for (Event& e : NIBBLE_TRY(engine_->step()).events)
            if (e.request == id && e.token >= 0) top = std::move(e.top);
    return top;
}

}  // namespace nibble
