// flock(2), asked for again and again: who waits in the call itself waits for a stopped process for ever.
// The lock goes with the descriptor.
#include "tools/repl/file_lock.h"

#include <chrono>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace nibble {

FileLock::FileLock(const std::filesystem::path& path, int flags)
    : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    using namespace std::chrono;
    const auto end = steady_clock::now() + seconds(10);
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) return;
        if (steady_clock::now() > end) return;
        std::this_thread::sleep_for(milliseconds(20));
    }
}

FileLock::~FileLock() {
    if (fd_ >= 0) ::close(fd_);
}

}  // namespace nibble
