// The terminal's state: saved at the start, given back at every end, also by signals and crashes.
// One object per process, made before anything changes the terminal.
#pragma once

#include <termios.h>

namespace nibble {

class TerminalGuard {
  public:
    TerminalGuard();   // without a terminal on stdin and stdout nothing happens, here and below
    ~TerminalGuard();  // gives the saved state back
    TerminalGuard(const TerminalGuard&) = delete;
    TerminalGuard& operator=(const TerminalGuard&) = delete;

    bool is_terminal() const { return terminal_; }
    // Whether it understands escape sequences.
    bool has_screen() const { return screen_; }
    void restore() const;  // the saved state, e.g. for an editor

  private:
    bool terminal_ = false, screen_ = false;
};

// Whether $TERM names a terminal that understands escape sequences.
bool knows_escapes();

// Keys are neither shown nor lost while no line is edited, and Enter and Ctrl-J stay different ones; Ctrl-C
// still is a signal.
class QuietKeys {
  public:
    QuietKeys();
    void again() const;  // after somebody else has changed the terminal
    ~QuietKeys();
    QuietKeys(const QuietKeys&) = delete;
    QuietKeys& operator=(const QuietKeys&) = delete;

  private:
    bool changed_ = false;
    termios before_{}, quiet_{};
};

// What has happened to the screen since the last call: another size, or the program went on after Ctrl-Z.
struct ScreenChange {
    bool resized = false, continued = false;
};
ScreenChange take_screen_change();
bool screen_changed();

// Whether whoever started the program wants a signal ignored: nohup, or a shell of its background jobs.
bool is_ignored(int signal);

// SIGTERM, SIGHUP or SIGPIPE, when one has come since the guard was made, else 0. The program should end in
// order and then let that signal kill it; a second one does not wait.
int ending_signal();

// Whether Ctrl-C was pressed since the last call.
bool take_interrupt();
bool interrupt_pending();

}  // namespace nibble
