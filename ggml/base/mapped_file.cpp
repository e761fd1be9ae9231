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

// Where writing to a name ends up: a link is followed, so that it stays one.
Result<std::filesystem::path> resolve_destination(const std::filesystem::path& given) {
    if (given == "-")
        return Error{ErrorCode::invalid_argument, "-", "is no file: this is not written to standard output",
                     "give a file, or ./- for one of that name"};
    std::error_code ec;
    const auto status = std::filesystem::status(given, ec);
    if (status.type() == std::filesystem::file_type::none)
        return Error{ErrorCode::io, given.string(), cat("cannot be written: ", ec.message()), ""};
    if (std::filesystem::is_directory(status))
        return Error{ErrorCode::invalid_argument, given.string(), "is a folder", "give the name of a file"};
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
        return Error{ErrorCode::invalid_argument, given.string(), "is a device or pipe",
                     "give the name of a file"};
    auto target = given;
    constexpr int most_links = 40;  // as the kernel has it; also of links to nothing yet
    for (int i = 0; i < most_links && std::filesystem::is_symlink(target, ec); ++i)
        target = target.parent_path() / std::filesystem::read_symlink(target, ec);
    if (const auto folder = target.parent_path();
        !folder.empty() &&
        std::filesystem::status(folder, ec).type() == std::filesystem::file_type::not_found)
        return Error{ErrorCode::not_found, given.string(),
                     cat("the folder ", folder.string(), " does not exist"), "create it first"};
    return target;
}

void advise(std::span<const std::byte> mapped, int advice) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(mapped.data()) / page * page;
    const auto end = (reinterpret_cast<uintptr_t>(mapped.data()) + mapped.size() + page - 1) / page * page;
    (void)::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

// A file without a name, which is gone with the process, however that ends. -1 where there are none such, or
// where they could not be named later.
int open_unnamed(const std::filesystem::path& folder) {
#ifdef O_TMPFILE
    if (::access("/proc/self/fd", X_OK) == 0)
        return ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
#endif
    (void)folder;
    return -1;
}

// Who may not read the file that is there may not read the one in its place: it goes to the same group, or
// none.
mode_t mode_of_replaced(int fd, const struct stat& there) {
    struct stat now {};
    const bool same = ::fstat(fd, &now) == 0 && now.st_gid == there.st_gid;
    const bool given = same || ::fchown(fd, static_cast<uid_t>(-1), there.st_gid) == 0;
    return there.st_mode & (given ? 0777 : 0707);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    struct stat there {};  // opening a pipe would wait for who writes to it
    if (::stat(path.c_str(), &there) == 0 && S_ISFIFO(there.st_mode))
        return Error{ErrorCode::io, path.string(), "is a pipe, not a file", ""};
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

// Whole pages, also those shared with neighbours: a read-only mapping loses nothing by it. Where advice
// cannot be taken, everything works.
void release_pages(std::span<const std::byte> mapped) { advise(mapped, MADV_DONTNEED); }
void ask_for_pages(std::span<const std::byte> mapped) { advise(mapped, MADV_WILLNEED); }

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

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& destination, Readers readers) {
    AtomicFile f;
    f.destination_ = NIBBLE_TRY(resolve_destination(destination));
    struct stat there {};
    const bool replaces = ::stat(f.destination_.c_str(), &there) == 0 && S_ISREG(there.st_mode);
    // Where there are no modes the file is as it is.
    const auto set_readers = [&] {
        (void)::fchmod(f.fd_, readers == Readers::owner ? 0600 : mode_of_replaced(f.fd_, there));
    };
    const bool is_usual = !replaces && readers == Readers::usual;
    f.fd_ = open_unnamed(f.destination_.parent_path());
    if (f.fd_ >= 0) {
        if (!is_usual) set_readers();
        return f;
    }
    std::string name = f.destination_.string() + ".XXXXXX.tmp";
    f.fd_ = ::mkstemps(name.data(), 4);
    if (f.fd_ < 0) return system_error(destination, "create a temporary file beside it");
    f.temporary_ = name;
    if (!is_usual) {
        set_readers();
        return f;
    }
    const mode_t mask = ::umask(0);
    ::umask(mask);
    (void)::fchmod(f.fd_, 0666 & ~mask);
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
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
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

// Gives a file without a name one that nobody else has. A link cannot replace a file, a rename can.
Result<void> AtomicFile::name_it() {
    const std::string open_file = cat("/proc/self/fd/", fd_);
    constexpr int most_tries = 100;
    for (int i = 0; i < most_tries && temporary_.empty(); ++i) {
        const auto name = destination_.parent_path() / cat("nibble-", ::getpid(), "-", i, ".tmp");
        if (::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0)
            temporary_ = name;
        else if (errno != EEXIST)
            break;
    }
    if (temporary_.empty()) return system_error(destination_, "create");
    return {};
}

Result<void> AtomicFile::commit() {
    if (::fsync(fd_) != 0) return system_error(destination_, "flush to disk");
    if (temporary_.empty()) NIBBLE_TRY(name_it());
    if (::rename(temporary_.c_str(), destination_.c_str()) != 0)
        return system_error(destination_, "rename the finished file into place");
    ::close(std::exchange(fd_, -1));
    // The new name outlives a loss of power once its folder is on the disk, where folders can be synced.
    const std::filesystem::path folder = destination_.parent_path();
    const Descriptor d{::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (d.fd >= 0) ::fsync(d.fd);
    return {};
}

}  // namespace nibble
