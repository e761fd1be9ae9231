// Rendering through the template; the end of a turn is found by rendering a probe conversation.
// The template owns BOS: the ids are those of its text, nothing is added.
#include "src/chat/format.h"

namespace nibble {
namespace {

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

bool RenderedPrompt::opens_thinking() const {
    if (segments.empty() || !segments.back().from_template) return false;
    const std::string_view end = segments.back().text;
    return end.substr(0, end.find_last_not_of(white) + 1).ends_with("<think>");
}

ChatFormat::ChatFormat(const Tokenizer& tokenizer, ChatTemplate chat, bool own)
    : tokenizer_(&tokenizer), chat_(std::move(chat)), own_(own) {
    stops_ = find_stops();
}

ChatTemplate::Input ChatFormat::input(const Conversation& c, size_t first) const {
    const Vocab& v = tokenizer_->vocab();
    ChatTemplate::Input in;
    in.messages = messages_json(c, first);
    if (v.bos && (own_ || v.add_bos)) in.bos_token = tokenizer_->piece(*v.bos);
    if (v.eos) in.eos_token = tokenizer_->piece(*v.eos);
    return in;
}

Result<RenderedPrompt> ChatFormat::render(const Conversation& c, size_t first) const {
    auto segments = chat_.render_segments(input(c, first));
    if (!segments) {
        Error e = std::move(segments).error();
        e.code = ErrorCode::unsupported;  // the command was right: the template refuses this conversation
        return e;
    }
    return RenderedPrompt{std::move(*segments)};
}

std::vector<Token> ChatFormat::encode(const RenderedPrompt& prompt) const {
    return tokenizer_->encode(prompt.segments);
}

std::vector<std::string> ChatFormat::find_stops() const {
    Conversation probe;
    probe.messages = {{"user", "nibble-1"}, {"assistant", "nibble-2"}, {"user", "nibble-3"}};
    ChatTemplate::Input in = input(probe, 0);
    in.eos_token.clear();  // ends an answer anyway; what else the template writes is looked for
    const auto rendered = chat_.render(in);
    if (!rendered) return {};  // a template with rules of its own; its control tokens end the turn
    const size_t answer = rendered->find("nibble-2"), next = rendered->find("nibble-3");
    if (answer == std::string::npos || next == std::string::npos || next < answer + 8) return {};
    const std::string marker = end_marker(std::string_view(*rendered).substr(answer + 8, next - answer - 8));
    const auto id = tokenizer_->find(marker);
    if (marker.empty() || (id && (tokenizer_->is_end_of_generation(*id) || tokenizer_->is_end_of_part(*id))))
        return {};
    return {marker};
}

}  // namespace nibble
