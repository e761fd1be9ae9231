// POSIX implementation of MappedFile and AtomicFile.
// Errors carry the path and errno's text.
#include "ggml/base/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ggml/base/cat.h"

namespace nibble {
namespace {

Error system_error(const std::filesystem::path& path, std::string_view doing) {
    const int e = errno;
    const ErrorCode code = e == ENOENT ? ErrorCode::not_found : ErrorCode::io;
    return {code, path.string(), cat("cannot ", doing, ": ", std::strerror(e)), ""};
}

// Closes a descriptor at the end of a scope.
struct Descriptor {
    int fd;
    ~Descriptor() {
        if (fd >= 0) ::close(fd);
    }
};

Result<size_t> regular_file_size(int fd, const std::filesystem::path& path) {
    struct stat st {};
    if (::fstat(fd, &st) != 0) return system_error(path, "stat");
    if (S_ISDIR(st.st_mode)) return Error{ErrorCode::io, path.string(), "is a folder, not a file", ""};
    if (!S_ISREG(st.st_mode)) return Error{ErrorCode::io, path.string(), "is not a regular file", ""};
    return static_cast<size_t>(st.st_size);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    const Descriptor d{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (d.fd < 0) return system_error(path, "open");
    MappedFile m;
    m.size_ = NIBBLE_TRY(regular_file_size(d.fd, path));
    if (m.size_ == 0) return m;
    void* p = ::mmap(nullptr, m.size_, PROT_READ, MAP_PRIVATE, d.fd, 0);
    if (p == MAP_FAILED) {
        m.size_ = 0;
        return system_error(path, "map");
    }
    m.data_ = static_cast<const std::byte*>(p);
    return m;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

MappedFile::~MappedFile() {
    if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void release_pages(std::span<const std::byte> mapped) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(mapped.data()) / page * page;
    const auto end = (reinterpret_cast<uintptr_t>(mapped.data()) + mapped.size() + page - 1) / page * page;
    // Whole pages, also those shared with neighbours: a read-only mapping loses nothing by it.
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<std::string> read_text_file(const std::filesystem::path& path, size_t limit) {
    const Descriptor d{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (d.fd < 0) return system_error(path, "open");
    struct stat st {};
    if (::fstat(d.fd, &st) != 0) return system_error(path, "stat");
    if (S_ISDIR(st.st_mode)) return Error{ErrorCode::io, path.string(), "is a folder, not a file", ""};
    // Read until the end instead of trusting st_size: pipes and /proc files have none.
    std::string text;
    char buf[1 << 16];
    for (;;) {
        const ssize_t n = ::read(d.fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return system_error(path, "read");
        if (n == 0) return text;
        if (text.size() + static_cast<size_t>(n) > limit)
            return Error{ErrorCode::io, path.string(), cat("is larger than the limit of ", limit, " bytes"),
                         ""};
        text.append(buf, static_cast<size_t>(n));
    }
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& destination) {
    AtomicFile f;
    f.destination_ = destination;
    std::string name = destination.string() + ".XXXXXX.tmp";
    f.fd_ = ::mkstemps(name.data(), 4);
    if (f.fd_ < 0) return system_error(destination, "create a temporary file beside it");
    f.temporary_ = name;
    const mode_t mask = ::umask(0);
    ::umask(mask);
    (void)::fchmod(f.fd_, 0666 & ~mask);  // mkstemps gives 0600; outputs get the user's usual mode
    return f;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      destination_(std::move(other.destination_)),
      temporary_(std::move(other.temporary_)) {}

AtomicFile::~AtomicFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return system_error(destination_, "write");
        size_ += static_cast<uint64_t>(n);
        bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return {};
}

Result<void> AtomicFile::commit() {
    if (::fsync(fd_) != 0) return system_error(destination_, "flush to disk");
    if (::rename(temporary_.c_str(), destination_.c_str()) != 0)
        return system_error(destination_, "rename the finished file into place");
    ::close(std::exchange(fd_, -1));
    return {};
}

}  // namespace nibble
