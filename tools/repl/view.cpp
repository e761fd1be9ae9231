// Tags are recognised however the text is cut; on a terminal, control characters of a model's text are shown
// as U+FFFD: an answer must not be able to steer the terminal.
#include "tools/repl/view.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "ggml/base/cat.h"
#include "ggml/file/quote.h"
#include "tools/cli.h"

namespace nibble {
namespace {

constexpr std::string_view open_tag = "<think>", close_tag = "</think>";

// How many bytes at the end of text begin the tag.
size_t partial(std::string_view text, std::string_view tag) {
    for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n)
        if (text.ends_with(tag.substr(0, n))) return n;
    return 0;
}

std::string harmless(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
        const bool c1 = c == 0xC2 && next >= 0x80 && next < 0xA0;
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || c1)
            out += "\xEF\xBF\xBD";
        else
            out += text[i];
        if (c1) ++i;
    }
    return out;
}

void write(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

}  // namespace

void ReplView::dim(bool on) const {
    if (colour_) write(on ? "\x1b[2m" : "\x1b[0m");
}

void ReplView::put(std::string_view text) {
    if (text.empty() || (thinking_ && hide_)) return;
    write(terminal_ ? harmless(text) : text);
    line_open_ = !text.ends_with('\n');
}

void ReplView::text(std::string_view part) {
    held_ += part;
    for (;;) {
        const std::string_view tag = thinking_ ? close_tag : open_tag;
        const size_t at = held_.find(tag);
        if (at == std::string::npos) break;
        const size_t end = at + tag.size();
        if (thinking_) {
            put(std::string_view(held_).substr(0, end));
            thinking_ = false;
            dim(false);
        } else {
            put(std::string_view(held_).substr(0, at));
            dim(!hide_);
            thinking_ = true;
            put(tag);
        }
        held_.erase(0, end);
    }
    const size_t sure = held_.size() - partial(held_, thinking_ ? close_tag : open_tag);
    put(std::string_view(held_).substr(0, sure));
    held_.erase(0, sure);
}

void ReplView::end_answer() {
    put(held_);
    held_.clear();
    if (thinking_) dim(false);
    thinking_ = false;
    if (line_open_) write("\n");
    line_open_ = false;
}

void ReplView::notice(std::string_view text) {
    if (terminal_ && std::exchange(line_open_, false)) write("\n");
    std::fprintf(stderr, "nibble: %s\n", printable(text, max_message).c_str());
}

void ReplView::status(const Turn& turn, int32_t ctx) const {
    if (!terminal_) return;
    const double rate =
        turn.generated > 1 && turn.decode_seconds > 0 ? (turn.generated - 1) / turn.decode_seconds : 0;
    char text[160];
    std::snprintf(text, sizeof text, "[%d tokens, %.1f tokens/s, context %d/%d%s]", turn.generated, rate,
                  turn.context_used, ctx,
                  turn.finish == Finish::cancelled ? ", stopped"
                  : turn.finish == Finish::length  ? ", cut at -n"
                                                   : "");
    dim(true);
    write(text);
    dim(false);
    write("\n");
}

void ReplView::line(std::string_view text) const {
    write(text);
    write("\n");
}

}  // namespace nibble
