// Standard input as a file, whatever is behind it.
// Not by opening /dev/stdin: that fails for sockets, and begins anew in a file that was read in part.
#include "tools/standard_input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <poll.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"

namespace nibble {
namespace {

constexpr size_t most_bytes = size_t{1} << 30;
constexpr int patience_ms = 2000;

void note_if_silent() {
    pollfd p{STDIN_FILENO, POLLIN, 0};
    if (::poll(&p, 1, patience_ms) != 0) return;
    std::fprintf(stderr, "nibble: note: waiting for standard input (%s)\n",
                 ::isatty(STDIN_FILENO) ? "Ctrl-D ends it" : "add < /dev/null if there is none");
}

}  // namespace

Result<std::string> read_some_standard_input() {
    std::string text(1 << 16, '\0');
    for (;;) {
        const ssize_t n = ::read(STDIN_FILENO, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return Error{ErrorCode::io, "standard input", cat("cannot be read: ", std::strerror(errno)), ""};
        text.resize(static_cast<size_t>(n));
        return text;
    }
}

Result<std::string> read_standard_input() {
    note_if_silent();
    std::string text;
    for (;;) {
        const std::string some = NIBBLE_TRY(read_some_standard_input());
        if (some.empty()) return text;
        if (text.size() + some.size() > most_bytes)
            return Error{ErrorCode::io, "standard input", cat("is larger than ", most_bytes, " bytes"), ""};
        text += some;
    }
}

std::string input_name(const std::string& file) { return file == "-" ? "standard input" : file; }

Result<std::string> read_input(const std::string& file) {
    return file == "-" ? read_standard_input() : read_text_file(file);
}

}  // namespace nibble
