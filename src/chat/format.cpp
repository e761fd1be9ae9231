// Rendering through the template; the end of a turn is found by rendering a probe conversation.
// The template owns BOS: the ids are those of its text, nothing is added.
#include "src/chat/format.h"

#include <utility>

#include "ggml/base/cat.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view white = " \t\r\n";

// From the text between an answer and the next message: the marker that ends a turn.
std::string end_marker(std::string_view between) {
    const size_t begin = between.find_first_not_of(white);
    if (begin == std::string_view::npos) return {};
    const bool new_line = between.substr(0, begin).find('\n') != std::string_view::npos;
    std::string_view marker = between.substr(begin);
    if (marker.starts_with('<'))
        marker = marker.substr(0, marker.find('>') == marker.npos ? marker.npos : marker.find('>') + 1);
    marker = marker.substr(0, marker.find('\n'));
    marker = marker.substr(0, marker.find_last_not_of(white) + 1);
    std::string stop(new_line ? 1 : 0, '\n');
    return stop.append(marker);
}

}  // namespace

std::string RenderedPrompt::text() const {
    std::string all;
    for (const TemplateSegment& s : segments) all += s.text;
    return all;
}

ChatFormat::ChatFormat(const Tokenizer& tokenizer, ChatTemplate chat, bool own,
                       nlohmann::ordered_json variables)
    : tokenizer_(&tokenizer), chat_(std::move(chat)), own_(own), variables_(std::move(variables)) {
    find_stops();
}

bool ChatFormat::set_thinking(Thinking thinking) {
    Conversation probe;
    probe.messages = {{"user", "nibble"}};
    const auto prompt_with = [&](const Thinking& t) {
        thinking_ = t;
        const auto prompt = render(probe);
        return prompt ? prompt->text() : prompt.error().message();
    };
    using Mode = Thinking::Mode;
    Thinking other{thinking.mode == Mode::off ? Mode::on : Mode::off, {}};
    // One of two efforts may be the template's own choice.
    bool changes = !thinking.effort.empty()
                       ? prompt_with({Mode::on, "low"}) != prompt_with({Mode::on, "high"})
                       : prompt_with(thinking) != prompt_with(other);
    thinking_ = std::move(thinking);
    return changes;
}

ChatTemplate::Input ChatFormat::input(const Conversation& c, size_t first) const {
    const Vocab& v = tokenizer_->vocab();
    ChatTemplate::Input in;
    in.messages = messages_json(c, first);
    separate_thoughts(in.messages);
    if (v.bos && (own_ || v.add_bos)) in.bos_token = tokenizer_->piece(*v.bos);
    if (v.eos) in.eos_token = tokenizer_->piece(*v.eos);
    in.extra = variables_;
    if (thinking_.mode == Thinking::Mode::as_template) return in;
    const bool on = thinking_.mode == Thinking::Mode::on;
    for (const char* name : {"enable_thinking", "thinking"}) in.extra[name] = on;  // whichever it looks for
    if (!on) in.extra["thinking_budget"] = 0;
    if (!thinking_.effort.empty()) in.extra["reasoning_effort"] = thinking_.effort;
    return in;
}

void ChatFormat::separate_thoughts(Json& messages) const {
    const auto& tokens = tokenizer_->thought_tokens();
    if (!tokens || tokens->marks->open == think_open) return;
    for (Json& m : messages) {
        if (m["role"] != "assistant") continue;
        SplitAnswer split = split_thoughts(m["content"].get_ref<const std::string&>());
        m["content"] = std::move(split.answer);
        if (split.thoughts.empty()) continue;
        m["thinking"] = split.thoughts;  // as gpt-oss calls them
        m["reasoning_content"] = std::move(split.thoughts);
    }
}

// The mark that closes what the prompt ends with the opening mark of; empty: it does not.
std::string_view ChatFormat::closing_mark(const RenderedPrompt& prompt) const {
    if (prompt.segments.empty() || !prompt.segments.back().from_template) return {};
    std::string_view end = prompt.segments.back().text;
    end = end.substr(0, end.find_last_not_of(white) + 1);
    if (end.ends_with(think_open)) return think_close;
    const auto& tokens = tokenizer_->thought_tokens();
    const bool plain = tokens && tokens->marks->name_end.empty();
    return plain && end.ends_with(tokens->marks->open) ? tokens->marks->close : "";
}

void ChatFormat::answer_directly(RenderedPrompt& prompt) const {
    const auto& tokens = tokenizer_->thought_tokens();
    std::string begin;
    if (prompt.opens_thinking)
        begin = cat("\n", closing_mark(prompt), "\n\n");
    else if (tokens && prompt.text().find(tokens->marks->next) != std::string::npos)  // in its own format
        begin = tokens->marks->direct;
    if (!begin.empty()) prompt.segments.push_back({std::move(begin), true});
    prompt.opens_thinking = false;
}

Result<RenderedPrompt> ChatFormat::render(const Conversation& c, size_t first) const {
    auto segments = chat_.render_segments(input(c, first));
    if (!segments) {
        Error e = std::move(segments).error();
        e.code = ErrorCode::unsupported;  // the command was right: the template refuses this conversation
        return e;
    }
    RenderedPrompt prompt{std::move(*segments)};
    prompt.opens_thinking = !closing_mark(prompt).empty();
    if (thinking_.mode == Thinking::Mode::off) answer_directly(prompt);
    return prompt;
}

std::vector<Token> ChatFormat::encode(const RenderedPrompt& prompt) const {
    return tokenizer_->encode(prompt.segments);
}

void ChatFormat::find_stops() {
    Conversation probe;
    probe.messages = {{"user", "nibble-1"}, {"assistant", "nibble-2"}, {"user", "nibble-3"}};
    ChatTemplate::Input in = input(probe, 0);
    in.eos_token.clear();  // ends an answer anyway; what else the template writes is looked for
    const auto rendered = chat_.render(in);
    if (!rendered) return;  // a template with rules of its own; its control tokens end the turn
    const size_t answer = rendered->find("nibble-2"), next = rendered->find("nibble-3");
    if (answer == std::string::npos || next == std::string::npos || next < answer + 8) return;
    const std::string marker = end_marker(std::string_view(*rendered).substr(answer + 8, next - answer - 8));
    const size_t name = marker.starts_with('\n') ? 1 : 0;
    const auto id = tokenizer_->find(std::string_view(marker).substr(name));
    if (marker.empty()) return;
    if (!id || !tokenizer_->is_control(*id)) {
        stops_ = {marker};
        return;
    }
    // It has no text to be found by.
    const auto& thoughts = tokenizer_->thought_tokens();
    if (!tokenizer_->is_end_of_generation(*id) && !(thoughts && thoughts->close == *id)) stop_tokens_ = {*id};
}

}  // namespace nibble
