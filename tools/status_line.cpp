// Drawn with two escape sequences that every terminal of the last decades knows: to the first column, and
// what follows is cleared.
#include "tools/status_line.h"

#include <cstdio>
#include <utility>

#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/file/quote.h"
#include "tools/repl/terminal.h"

namespace nibble {

StatusLine::StatusLine(bool wanted) : possible_(wanted && ::isatty(STDERR_FILENO) && knows_escapes()) {}

void StatusLine::show(const std::string& text) {
    if (!possible_) return;
    std::fprintf(stderr, "\r\x1b[K%s", printable(text).c_str());
    shown_ = true;
}

void StatusLine::clear() {
    if (std::exchange(shown_, false)) std::fputs("\r\x1b[K", stderr);
}

std::string reading_status(int64_t read, int64_t left) {
    return cat("reading the prompt, ", read, " of ", read + left, " tokens");
}

}  // namespace nibble
