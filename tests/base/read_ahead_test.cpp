// ReadAhead: bytes come into memory without anybody's use of them, as far as it may ask; it ends whenever it
// has to. Run under ThreadSanitizer in CI.
#include "ggml/base/read_ahead.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"

using namespace nibble;
namespace fs = std::filesystem;

namespace {

// A mapped file whose bytes are on the disk alone, as far as the file system has one.
struct ColdFile {
    static constexpr size_t bytes = size_t{3} << 20;
    fs::path path = fs::temp_directory_path() / cat("nibble-read-ahead-", ::getpid());
    MappedFile file;

    ColdFile() {
        std::ofstream(path) << std::string(bytes, 'x');
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        REQUIRE(fd >= 0);
        ::fsync(fd);
        ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        ::close(fd);
        file = std::move(*MappedFile::open(path));
    }
    ~ColdFile() { fs::remove(path); }

    bool in_memory() const {
        std::vector<unsigned char> pages(bytes / static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
        REQUIRE(::mincore(const_cast<std::byte*>(file.bytes().data()), bytes, pages.data()) == 0);
        return std::ranges::all_of(pages, [](unsigned char page) { return (page & 1) != 0; });
    }
};

}  // namespace

TEST_CASE("spans come into memory once what precedes them is in use") {
    const ColdFile cold;
    const auto bytes = cold.file.bytes();
    const size_t part = bytes.size() / 3;
    ReadAhead ahead({bytes.first(part), bytes.subspan(part, part), bytes.subspan(2 * part)}, part);
    ahead.reach(0);
    ahead.reach(2);
    for (int i = 0; i < 2000 && !cold.in_memory(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(cold.in_memory());
}

TEST_CASE("reading ahead ends where it waits, in its midst, or without anything to read") {
    const ColdFile cold;
    const auto bytes = cold.file.bytes();
    { const ReadAhead waits({bytes.first(1 << 20), bytes.subspan(1 << 20)}, 1); }
    { const ReadAhead reads({bytes, bytes, bytes}); }
    { const ReadAhead nothing({}); }
    { const ReadAhead empty({bytes.first(0)}); }
}
