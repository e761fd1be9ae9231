// Signal handlers can reach nothing but variables of static storage; they use async-signal-safe calls only.
// SIGINT, SIGTERM, SIGHUP and SIGPIPE are notes for whoever runs; the deadly ones restore the terminal first
// and then kill as usual.
#include "tools/repl/terminal.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace nibble {
namespace {

volatile std::sig_atomic_t interrupted = 0, ending = 0;
volatile std::sig_atomic_t guarded = 0, plain_screen = 0, resized = 0, continued = 0;
termios saved;  // valid while guarded

// Bracketed paste off, plain colours, cursor shown.
constexpr char plain[] = "\x1b[?2004l\x1b[0m\x1b[?25h";

// A job in the background may not set the terminal: it would be stopped for the attempt.
bool in_background() {
    const pid_t group = ::tcgetpgrp(STDIN_FILENO);
    return group > 0 && group != ::getpgrp();
}

void give_back() {
    if (in_background()) return;  // the shell has it already
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
    if (plain_screen) [[maybe_unused]]
        const auto n = ::write(STDOUT_FILENO, plain, sizeof plain - 1);
}

void on_deadly(int signal) {
    if (guarded) give_back();
    std::signal(signal, SIG_DFL);
    ::raise(signal);
}

// The first one is a note; whoever runs ends in order. In the background nothing may reach the terminal on
// the way, not even from libedit.
void on_end(int signal) {
    if (ending) on_deadly(signal);
    ending = signal;
    const int error = errno;
    if (guarded && in_background())
        if (const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC); null >= 0)
            ::dup2(null, STDIN_FILENO), ::dup2(null, STDOUT_FILENO), ::close(null);
    errno = error;
}

void handle(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;  // without SA_RESTART: a read ends with EINTR
    ::sigaction(signal, &action, nullptr);
}

// Ctrl-Z: the shell gets the terminal as it was, and we get it back as we had it. After W. R. Stevens,
// "Advanced Programming in the UNIX Environment", section 10.21.
void on_stop(int signal) {
    const int error = errno;
    termios ours{};
    const bool known = ::tcgetattr(STDIN_FILENO, &ours) == 0;
    if (guarded) give_back();
    std::signal(signal, SIG_DFL);
    sigset_t stop, before;
    ::sigemptyset(&stop);
    ::sigaddset(&stop, signal);
    ::raise(signal);
    ::sigprocmask(SIG_UNBLOCK, &stop, &before);  // here it stops, and goes on
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    handle(signal, on_stop);
    if (guarded && known && !ending) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &ours);
    resized = 1;
    continued = 1;
    errno = error;
}

}  // namespace

bool is_ignored(int signal) {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

TerminalGuard::TerminalGuard() {
    for (const int s : {SIGTERM, SIGHUP})
        if (!is_ignored(s)) handle(s, on_end);  // nohup ignores one
    // Whoever read the answers has left: every further one would bring the signal again.
    if (!is_ignored(SIGPIPE)) handle(SIGPIPE, [](int) { ending = ending ? ending : SIGPIPE; });
    terminal_ = ::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO) && ::tcgetattr(STDIN_FILENO, &saved) == 0;
    // A script's messages end by Ctrl-C; of those that are typed it stops the answer.
    if (::isatty(STDIN_FILENO))
        handle(SIGINT, [](int) { interrupted = 1; });
    else if (!is_ignored(SIGINT))
        handle(SIGINT, on_end);
    if (!terminal_) return;
    screen_ = knows_escapes();
    plain_screen = screen_;
    guarded = 1;
    for (const int s : {SIGQUIT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) handle(s, on_deadly);
    handle(SIGWINCH, [](int) { resized = 1; });
    if (!is_ignored(SIGTSTP)) handle(SIGTSTP, on_stop);
}

TerminalGuard::~TerminalGuard() {
    restore();
    guarded = 0;
}

void TerminalGuard::restore() const {
    if (terminal_) give_back();
}

bool knows_escapes() {
    const char* const term = std::getenv("TERM");
    return term && *term && std::string_view(term) != "dumb";
}

QuietKeys::QuietKeys() {
    if (!::isatty(STDIN_FILENO) || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    quiet_ = before_;
    quiet_.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
    quiet_.c_iflag &= ~static_cast<tcflag_t>(ICRNL);
    quiet_.c_cc[VMIN] = 1;
    quiet_.c_cc[VTIME] = 0;
    changed_ = true;
    again();
}

void QuietKeys::again() const {
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet_);
}

QuietKeys::~QuietKeys() {
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

bool screen_changed() { return resized || continued; }

ScreenChange take_screen_change() {
    const ScreenChange change{resized != 0, continued != 0};
    resized = 0;
    continued = 0;
    return change;
}

int ending_signal() { return ending; }

bool interrupt_pending() { return interrupted; }

bool take_interrupt() {
    const bool was = interrupted;
    interrupted = 0;
    return was;
}

}  // namespace nibble
