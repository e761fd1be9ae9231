// Runs a program with arguments and input, and collects its output and exit code.
// No shell in between: arguments arrive as they are.
#pragma once

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nibble {

struct ProcessResult {
    std::string out, err;
    int code = -1;  // exit code, or 128 + signal
};

// `signal_after_output`: sent once the first byte of stdout has arrived; 0: none.
inline ProcessResult run_process(const std::vector<std::string>& args, const std::string& input = {},
                                 int signal_after_output = 0) {
    std::signal(SIGPIPE, SIG_IGN);  // the child may end without reading its input
    int in[2], out[2], err[2];
    if (::pipe2(in, O_CLOEXEC) || ::pipe2(out, O_CLOEXEC) || ::pipe2(err, O_CLOEXEC)) return {};
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::dup2(in[0], 0), ::dup2(out[1], 1), ::dup2(err[1], 2);
        std::vector<char*> argv;
        for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
        argv.push_back(nullptr);
        ::setenv("NIBBLE_CONFIG", "", 0);  // what is configured on this machine does not matter
        ::execv(argv[0], argv.data());
        ::_exit(127);
    }
    for (const int fd : {in[0], out[1], err[1]}) ::close(fd);
    ProcessResult r;
    const auto drain = [](int fd, std::string& to, auto&& first) {
        char buf[4096];
        for (ssize_t n; (n = ::read(fd, buf, sizeof buf)) > 0;) {
            if (to.empty()) first();
            to.append(buf, static_cast<size_t>(n));
        }
        ::close(fd);
    };
    std::thread writer([&] {
        size_t at = 0;
        while (at < input.size()) {
            const ssize_t n = ::write(in[1], input.data() + at, input.size() - at);
            if (n <= 0) break;
            at += static_cast<size_t>(n);
        }
        ::close(in[1]);
    });
    std::thread errors([&] { drain(err[0], r.err, [] {}); });
    drain(out[0], r.out, [&] {
        if (signal_after_output) ::kill(pid, signal_after_output);
    });
    writer.join();
    errors.join();
    int status = 0;
    ::waitpid(pid, &status, 0);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return r;
}

// The program under test.
inline ProcessResult nibble_cli(std::vector<std::string> args, const std::string& input = {},
                                int signal = 0) {
    args.insert(args.begin(), NIBBLE_BINARY);
    ProcessResult r = run_process(args, input, signal);
    // Built with CUDA, on a machine without a GPU, it says so in one line: no test is about that.
    static constexpr std::string_view no_gpu = "; running on the CPU\n";
    if (const size_t at = r.err.find(no_gpu); at != std::string::npos) {
        const size_t before = r.err.rfind('\n', at), begin = before == std::string::npos ? 0 : before + 1;
        r.err.erase(begin, at + no_gpu.size() - begin);
    }
    return r;
}

}  // namespace nibble
