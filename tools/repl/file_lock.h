// What keeps two chats from writing the same file at the same time: an advisory lock, until it is destroyed.
// Where the file system knows none, or when another holds it for ten seconds, one goes on without.
#pragma once

#include <filesystem>

namespace nibble {

class FileLock {
  public:
    // Opens with `flags` of open(2), O_CREAT with mode 0600; a folder is locked as a file is.
    FileLock(const std::filesystem::path& path, int flags);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

    bool is_open() const { return fd_ >= 0; }

  private:
    int fd_;
};

}  // namespace nibble
