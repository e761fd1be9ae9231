// Runs a program in a pseudo-terminal of its own: type, wait for text, resize, signal, look at its state.
// The master side stays open until the end, so the terminal's settings can be read after the program is gone.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

namespace nibble::cli_test {

class Pty {
  public:
    explicit Pty(const std::vector<std::string>& args) {
        master_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        ::grantpt(master_);
        ::unlockpt(master_);
        const std::string name = ::ptsname(master_);
        slave_ = ::open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
        before_ = settings();
        resize(24, 100);
        pid_ = ::fork();
        if (pid_ != 0) return;
        ::setsid();
        const int fd = ::open(name.c_str(), O_RDWR);
        ::ioctl(fd, TIOCSCTTY, 0);
        for (const int to : {0, 1, 2}) ::dup2(fd, to);
        if (fd > 2) ::close(fd);
        ::setenv("TERM", "xterm-256color", 1);
        ::unsetenv("NO_COLOR");
        std::vector<char*> argv;
        for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
        argv.push_back(nullptr);
        ::setenv("NIBBLE_CONFIG", "", 0);  // what is configured on this machine does not matter
        ::execv(argv[0], argv.data());
        ::_exit(127);
    }
    ~Pty() {
        if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
        ::close(master_);
        ::close(slave_);
    }
    Pty(const Pty&) = delete;
    Pty& operator=(const Pty&) = delete;

    void type(const std::string& text) const {
        [[maybe_unused]] const auto n = ::write(master_, text.data(), text.size());
    }
    void signal(int s) const { ::kill(pid_, s); }
    void resize(unsigned short rows, unsigned short columns) const {
        const winsize size{rows, columns, 0, 0};
        ::ioctl(master_, TIOCSWINSZ, &size);
    }

    // Reads until `text` appears after what an earlier call found. False: not within the time.
    bool wait_for(const std::string& text, int seconds = 30) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
        for (;;) {
            if (const size_t at = seen_.find(text, from_); at != std::string::npos) {
                from_ = at + text.size();
                return true;
            }
            if (std::chrono::steady_clock::now() > end || !read_some(100)) return false;
        }
    }
    // Reads until there is this much after what an earlier call found.
    bool wait_for_more(size_t bytes, int seconds = 30) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
        while (seen_.size() < from_ + bytes)
            if (std::chrono::steady_clock::now() > end || !read_some(100)) return false;
        return true;
    }
    // The exit code, or 128 + signal; -1: it did not end.
    int wait_end(int seconds = 30) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
        int status = 0;
        while (::waitpid(pid_, &status, WNOHANG) != pid_) {
            if (std::chrono::steady_clock::now() > end) return -1;
            read_some(20);
        }
        pid_ = -1;
        while (read_some(0) && ::poll(nullptr, 0, 0) == 0 && more_) {
        }
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    // Whether the terminal's settings are what they were before the program.
    bool restored() const {
        const termios now = settings();
        return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag &&
               now.c_oflag == before_.c_oflag && now.c_cc[VMIN] == before_.c_cc[VMIN];
    }
    const std::string& seen() const { return seen_; }

  private:
    termios settings() const {
        termios t{};
        ::tcgetattr(slave_, &t);
        return t;
    }
    bool read_some(int milliseconds) {
        pollfd p{master_, POLLIN, 0};
        more_ = ::poll(&p, 1, milliseconds) > 0;
        if (!more_) return true;
        char buffer[4096];
        const ssize_t n = ::read(master_, buffer, sizeof buffer);
        if (n <= 0) return more_ = false;
        seen_.append(buffer, static_cast<size_t>(n));
        return true;
    }

    int master_ = -1, slave_ = -1;
    pid_t pid_ = -1;
    termios before_{};
    std::string seen_;
    size_t from_ = 0;
    bool more_ = false;
};

}  // namespace nibble::cli_test
