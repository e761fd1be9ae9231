// Damaged GGUF files, one lie at a time: counts, sizes, types, dimensions, offsets, duplicates.
// Each must end as an Error that names the field, without a large allocation.
#include <doctest/doctest.h>

#include "ggml/file/gguf_reader.h"
#include "tests/file/support.h"

using namespace nibble;
using namespace nibble::test;

namespace {

std::string what(const Bytes& b) {
    const auto f = parse_gguf(b.s);
    return f ? std::string("opened") : f.error().what;
}

struct Tensor {
    std::string name = "w";
    std::vector<uint64_t> ne = {4};
    uint32_t type = 0;
    uint64_t offset = 0;
};

Bytes& put(Bytes& b, const Tensor& t) {
    b.str(t.name).u32(static_cast<uint32_t>(t.ne.size()));
    for (const uint64_t n : t.ne) b.u64(n);
    return b.u32(t.type).u64(t.offset);
}

// A file with these tensors and `data` bytes behind them.
std::string with_tensors(const std::vector<Tensor>& tensors, size_t data) {
    Bytes b = gguf_head(tensors.size(), 0);
    for (const Tensor& t : tensors) put(b, t);
    b.pad(32).text(std::string(data, 'd'));
    return what(b);
}

constexpr uint64_t huge = uint64_t{1} << 60;

}  // namespace

TEST_CASE("counts beyond the file are refused at once") {
    CHECK(what(gguf_head(huge, 0)) == "field 'tensor count': 1152921504606846976 do not fit the file");
    CHECK(what(gguf_head(0, huge)) == "field 'metadata count': 1152921504606846976 do not fit the file");
    CHECK(what(gguf_head(UINT64_MAX, UINT64_MAX)).find("do not fit") != std::string::npos);
    CHECK(
        what(gguf_head(0, 1).str("k").u32(9).u32(4).u64(huge)).find("claims 1152921504606846976 elements") !=
        std::string::npos);
    for (const uint32_t type : {0u, 5u, 7u, 8u, 9u, 12u}) {
        CAPTURE(type);
        const auto f = parse_gguf(gguf_head(0, 1).str("k").u32(9).u32(type).u64(huge).text("12345678").s);
        REQUIRE(!f);
        CHECK(f.error().code == ErrorCode::corrupt);
        CHECK(f.error().what.find("'k'") != std::string::npos);
    }
}

TEST_CASE("strings and keys beyond the file or the format") {
    CHECK(what(gguf_head(0, 1).u64(huge).text("key and then some bytes")).find("metadata key") !=
          std::string::npos);
    CHECK(what(gguf_head(0, 1).str("").u32(4).u64(1)) == "field 'metadata key': number 1 has 0 bytes");
    CHECK(what(gguf_head(0, 1).str(std::string(65536, 'k')).u32(4).u32(1)).find("65536 bytes") !=
          std::string::npos);
    CHECK(what(gguf_head(0, 1).str("k").u32(8).u64(UINT64_MAX)).find("the file ends inside field 'k'") == 0);
    CHECK(what(gguf_head(0, 1).str("k").u32(9).u32(8).u64(1).u64(UINT64_MAX - 4)).find("the file ends") == 0);
    CHECK(what(gguf_head(0, 1).str("k").u32(13).u64(1)).find("value type 13") != std::string::npos);
    CHECK(what(gguf_head(0, 1).str("k").u32(9).u32(99).u64(0)).find("value type 99") != std::string::npos);
    CHECK(what(gguf_head(0, 1).str("k").u32(7).u8(2)).find("holds 2 where 0 or 1") != std::string::npos);
    CHECK(what(gguf_head(0, 2).str("k").u32(0).u8(2).str("k").u32(0).u8(2)) == "field 'k': occurs twice");
    // A key cannot write to the terminal.
    CHECK(what(gguf_head(0, 1).str("\x1b[2J").u32(77).u64(1)).find('\x1b') == std::string::npos);
}

TEST_CASE("nested arrays are bounded in depth") {
    const auto nested = [](int depth) {
        Bytes b = gguf_head(0, 1).str("k").u32(9);
        for (int i = 1; i < depth; ++i) b.u32(9).u64(1);
        return what(b.u32(0).u64(0));
    };
    CHECK(nested(1) == "opened");
    CHECK(nested(4) == "opened");
    CHECK(nested(5).find("deeper than 4") != std::string::npos);
    CHECK(nested(100000).find("deeper than 4") != std::string::npos);
}

TEST_CASE("alignment must be a power of two") {
    const auto aligned = [](uint32_t a) {
        return what(gguf_head(0, 1).str("general.alignment").u32(4).u32(a));
    };
    CHECK(aligned(64) == "opened");
    CHECK(aligned(0) == "general.alignment is 0, not a power of two");
    CHECK(aligned(48) == "general.alignment is 48, not a power of two");
    CHECK(aligned(0x80000000u) == "opened");
    CHECK(what(gguf_head(0, 1).str("general.alignment").u32(8).str("32")).find("must be an integer") !=
          std::string::npos);
}

TEST_CASE("tensor infos: dimensions and sizes") {
    CHECK(with_tensors({{}}, 16) == "opened");
    CHECK(with_tensors({{.ne = {}}}, 4) == "opened");  // a scalar
    CHECK(with_tensors({{.ne = {0, 5}}}, 0) == "opened");
    CHECK(with_tensors({{.ne = {1, 1, 1, 1, 1}}}, 16).find("has 5 dimensions") != std::string::npos);
    CHECK(with_tensors({{.ne = {UINT64_MAX}}}, 16).find("impossible dimensions [-1]") != std::string::npos);
    CHECK(with_tensors({{.ne = {huge, huge}}}, 16).find("impossible dimensions") != std::string::npos);
    CHECK(with_tensors({{.ne = {0, huge, huge}}}, 16).find("impossible dimensions") != std::string::npos);
    CHECK(with_tensors({{.ne = {uint64_t{1} << 62}}}, 16).find("impossible dimensions") != std::string::npos);
    CHECK(with_tensors({{.ne = {huge}}}, 16).find("needs 4611686018427387904 bytes") != std::string::npos);
    CHECK(with_tensors({{.ne = {33}, .type = 8}}, 64).find("rows are multiples of 32") != std::string::npos);
    CHECK(with_tensors({{.name = ""}}, 16) == "field 'tensor name': has 0 bytes");
    CHECK(with_tensors({{.name = std::string(2000, 'n')}}, 16).find("2000 bytes") != std::string::npos);
    CHECK(with_tensors({{}, {}}, 16) == "holds two tensors named 'w'");
}

TEST_CASE("tensor infos: offsets and the end of the file") {
    CHECK(with_tensors({{.offset = 32}}, 48) == "opened");
    CHECK(with_tensors({{.offset = 32}}, 47).find("needs 16 bytes at offset 32") != std::string::npos);
    CHECK(with_tensors({{}}, 15).find("needs 16 bytes at offset 0 of the data, which has 15") !=
          std::string::npos);
    CHECK(with_tensors({{.offset = 16}}, 48).find("not a multiple of 32") != std::string::npos);
    CHECK(with_tensors({{.offset = UINT64_MAX - 31}}, 48).find("at offset 18446744073709551584") !=
          std::string::npos);
    CHECK(with_tensors({{.name = "a"}, {.name = "b", .offset = 32}}, 48) == "opened");
    CHECK(with_tensors({{.name = "a"}, {.name = "b"}}, 48) == "tensor 'b' overlaps 'a'");
    CHECK(with_tensors({{.name = "a", .offset = 32}, {.name = "b", .ne = {9}}}, 68) ==
          "tensor 'a' overlaps 'b'");
    // The file may end before the padding when nothing follows it, and never in front of data.
    Bytes b = gguf_head(1, 0);
    CHECK(what(put(b, {.ne = {0}})) == "opened");
    Bytes c = gguf_head(1, 0);
    CHECK(what(put(c, {.ne = {1}})).find("of the data, which has 0") != std::string::npos);
}

TEST_CASE("tensor types that are unknown or retired are named") {
    CHECK(with_tensors({{.type = 4}}, 16) == "tensor 'w': tensor type 4 was retired from GGUF");
    CHECK(with_tensors({{.type = 36}}, 16) == "tensor 'w': tensor type 36 was retired from GGUF");
    CHECK(with_tensors({{.type = 12345}}, 16) == "tensor 'w': tensor type 12345 is not known");
    const auto f = parse_gguf(put(*std::make_unique<Bytes>(gguf_head(1, 0)), {.type = 99}).s);
    CHECK(f.error().code == ErrorCode::unsupported);
}
