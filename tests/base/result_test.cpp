// Result, NIBBLE_TRY, cat, checked arithmetic, ByteReader and the two file helpers.
// What every other module leans on.
#include <filesystem>
#include <fstream>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ggml/base/byte_reader.h"
#include "ggml/base/checked.h"
#include "ggml/base/mapped_file.h"

using namespace nibble;
namespace fs = std::filesystem;

namespace {

Result<int> half(int x) {
    if (x % 2) return Error{ErrorCode::invalid_argument, "x", cat(x, " is odd"), "give an even number"};
    return x / 2;
}
Result<int> quarter(int x) { return NIBBLE_TRY(half(NIBBLE_TRY(half(x)))); }

std::span<const std::byte> as_bytes(const std::string& s) {
    return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}

}  // namespace

TEST_CASE("NIBBLE_TRY passes values on and errors up") {
    CHECK(*quarter(12) == 3);
    REQUIRE(!quarter(6));
    CHECK(quarter(6).error().message() == "x: 3 is odd (give an even number)");
}

TEST_CASE("cat writes integers, floats and text without locale") {
    CHECK(cat("a", 1, ' ', -2L, " ", 0.5, true) == "a1 -2 0.5true");
}

TEST_CASE("checked arithmetic refuses overflow") {
    int64_t r = 7;
    CHECK(!checked_mul<int64_t>(INT64_MAX, 2, r));
    CHECK(!checked_add<int64_t>(INT64_MAX, 1, r));
    CHECK(r == 7);
    CHECK(checked_mul<int64_t>(6, 7, r));
    CHECK(r == 42);
}

TEST_CASE("ByteReader never reads past the end and keeps its place on failure") {
    const std::string data("\x05\0\0\0\x03\0\0\0\0\0\0\0abc", 15);
    ByteReader r(as_bytes(data), "f");
    CHECK(*r.read<uint32_t>("n") == 5);
    CHECK(*r.string("s") == "abc");
    CHECK(!r.read<uint8_t>("past"));
    CHECK(r.offset() == 15);
    const std::string huge("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    ByteReader h(as_bytes(huge), "g");
    CHECK(!h.string("s"));
}

TEST_CASE("files: missing, folder, empty, atomic writing") {
    const fs::path dir = fs::temp_directory_path() / cat("nibble-base-", ::getpid());
    fs::create_directories(dir);
    CHECK(MappedFile::open(dir / "none").error().code == ErrorCode::not_found);
    CHECK(!MappedFile::open(dir));
    std::ofstream(dir / "empty").close();
    CHECK(MappedFile::open(dir / "empty")->bytes().empty());

    const std::string text = "hello";
    {
        auto f = AtomicFile::create(dir / "out");
        REQUIRE(f);
        CHECK(f->write(as_bytes(text)).ok());
    }
    CHECK(std::distance(fs::directory_iterator(dir), {}) == 1);  // nothing left without commit
    auto f = AtomicFile::create(dir / "out");
    REQUIRE(f);
    CHECK(f->write(as_bytes(text)).ok());
    CHECK(f->commit().ok());
    CHECK(*read_text_file(dir / "out") == "hello");
    CHECK(!read_text_file(dir / "out", 4));
    CHECK(AtomicFile::create("-").error().code == ErrorCode::invalid_argument);
    // Who may not read the file that is replaced may not read the new one.
    fs::permissions(dir / "out", fs::perms::owner_read);
    auto again = AtomicFile::create(dir / "out");
    REQUIRE(again);
    CHECK(again->write(as_bytes(text)).ok());
    CHECK(again->commit().ok());
    CHECK(fs::status(dir / "out").permissions() == fs::perms::owner_read);
    // Nobody writes to this pipe: opening it must not wait for one.
    REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
    CHECK(!MappedFile::open(dir / "pipe"));
    fs::remove_all(dir);
}

TEST_CASE("a file that is being written leaves nothing behind when the process is killed") {
    const fs::path dir = fs::temp_directory_path() / cat("nibble-killed-", ::getpid());
    fs::create_directories(dir);
    const int probe = ::open(dir.c_str(), O_TMPFILE | O_WRONLY, 0600);
    if (probe < 0) {
        MESSAGE("files without a name are not supported here: skipped");
    } else {
        ::close(probe);
        const pid_t child = ::fork();
        if (child == 0) {
            auto f = AtomicFile::create(dir / "out");
            if (f) (void)f->write(as_bytes("half"));
            ::_exit(f ? 0 : 1);  // no destructor runs
        }
        int status = -1;
        CHECK(::waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        CHECK(fs::is_empty(dir));
    }
    fs::remove_all(dir);
}

TEST_CASE("a destination that is no file is refused and stays; a link stays a link") {
    const fs::path dir = fs::temp_directory_path() / cat("nibble-destination-", ::getpid());
    fs::create_directories(dir);
    REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
    const std::string long_name(300, 'x');
    for (const auto& path : {dir / "pipe", dir, fs::path("/dev/null"), dir / "none" / "out", dir / long_name})
        CHECK(!AtomicFile::create(path));
    CHECK(fs::is_fifo(dir / "pipe"));
    CHECK(AtomicFile::create(dir / "none" / "out").error().message().find("create it first") !=
          std::string::npos);
    for (const std::string target : {"there", "new"}) {
        if (target == "there") std::ofstream(dir / target) << "old";
        fs::create_symlink(target, dir / "link");
        auto f = AtomicFile::create(dir / "link");
        REQUIRE(f);
        REQUIRE(f->write(as_bytes("text")).ok());
        CHECK(f->commit().ok());
        CHECK(fs::is_symlink(dir / "link"));
        CHECK(*read_text_file(dir / target) == "text");
        fs::remove(dir / "link");
    }
    CHECK(std::distance(fs::directory_iterator(dir), {}) == 3);
    fs::remove_all(dir);
}
