// On a terminal, control characters of a text are shown as U+FFFD: neither an answer nor a file must be able
// to steer it.
#include "tools/repl/view.h"

#include <cstdio>
#include <utility>

#include "ggml/base/cat.h"
#include "ggml/file/quote.h"
#include "tools/cli.h"

namespace nibble {
namespace {

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

void ReplView::reading(int64_t read, int64_t left) { status_line_.show(reading_status(read, left)); }

void ReplView::put(const std::vector<ThoughtSplitter::Piece>& pieces) {
    status_line_.clear();
    for (const auto& [text, thought] : pieces) {
        if (thought && hide_) continue;
        if (std::exchange(dimmed_, thought) != thought) dim(thought);
        write(terminal_ ? harmless(text) : text);
        line_open_ = !text.ends_with('\n');
    }
}

void ReplView::text(std::string_view part) { put(splitter_.push(part)); }

void ReplView::end_answer() {
    put(splitter_.flush());
    splitter_ = ThoughtSplitter();
    if (std::exchange(dimmed_, false)) dim(false);
    if (line_open_) write("\n");
    line_open_ = false;
}

void ReplView::notice(std::string_view text) {
    status_line_.clear();
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
    write(terminal_ ? harmless(text) : text);
    write("\n");
}

}  // namespace nibble
