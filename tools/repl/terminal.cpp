// Signal handlers can reach nothing but variables of static storage; they use async-signal-safe calls only.
// SIGINT is a note for whoever runs; the deadly ones restore the terminal first and then kill as usual.
#include "tools/repl/terminal.h"

#include <csignal>
#include <initializer_list>

#include <unistd.h>

namespace nibble {
namespace {

volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t guarded = 0;
termios saved;  // valid while guarded

// Bracketed paste off, plain colours, cursor shown.
constexpr char plain[] = "\x1b[?2004l\x1b[0m\x1b[?25h";

void give_back() {
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
    if (::isatty(STDOUT_FILENO)) [[maybe_unused]]
        const auto n = ::write(STDOUT_FILENO, plain, sizeof plain - 1);
}

void on_deadly(int signal) {
    if (guarded) give_back();
    std::signal(signal, SIG_DFL);
    ::raise(signal);
}

void handle(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;  // without SA_RESTART: a read ends with EINTR
    ::sigaction(signal, &action, nullptr);
}

}  // namespace

TerminalGuard::TerminalGuard() {
    handle(SIGINT, [](int) { interrupted = 1; });
    terminal_ = ::isatty(STDIN_FILENO) && ::tcgetattr(STDIN_FILENO, &saved) == 0;
    if (!terminal_) return;
    guarded = 1;
    for (const int s : {SIGTERM, SIGHUP, SIGQUIT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
        handle(s, on_deadly);
}

TerminalGuard::~TerminalGuard() {
    restore();
    guarded = 0;
}

void TerminalGuard::restore() const {
    if (terminal_) give_back();
}

QuietKeys::QuietKeys() {
    if (!::isatty(STDIN_FILENO) || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
    quiet.c_iflag &= ~static_cast<tcflag_t>(ICRNL);  // Enter and Ctrl-J stay different keys
    quiet.c_cc[VMIN] = 1;
    quiet.c_cc[VTIME] = 0;
    changed_ = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet) == 0;
}

QuietKeys::~QuietKeys() {
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

bool interrupt_pending() { return interrupted; }

bool take_interrupt() {
    const bool was = interrupted;
    interrupted = 0;
    return was;
}

}  // namespace nibble
