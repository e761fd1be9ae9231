// GGUF: what the writer writes the reader reads back, and the writer's rules.
// Splits, alignment and the versions that are refused.
#include <limits>

#include <doctest/doctest.h>

#include "ggml/file/gguf_reader.h"
#include "ggml/file/gguf_writer.h"
#include "tests/file/support.h"

using namespace nibble;
using namespace nibble::test;

namespace {

Metadata every_type() {
    Metadata m;
    m.set("u8", uint8_t{255});
    m.set("i8", int8_t{-128});
    m.set("u16", uint16_t{65535});
    m.set("i16", int16_t{-32768});
    m.set("u32", uint32_t{4294967295u});
    m.set("i32", std::numeric_limits<int32_t>::min());
    m.set("f32", 0.1f);
    m.set("bool", true);
    m.set("string", std::string("with\0zero and ünïcode", 22));
    m.set("u64", std::numeric_limits<uint64_t>::max());
    m.set("i64", std::numeric_limits<int64_t>::min());
    m.set("f64", 0.1);
    m.set("empty string", "");
    m.set("a.u8", std::vector<uint8_t>{1, 2, 255});
    m.set("a.i8", std::vector<int8_t>{-1});
    m.set("a.u16", std::vector<uint16_t>{1, 65535});
    m.set("a.i16", std::vector<int16_t>{-1, 5});
    m.set("a.u32", std::vector<uint32_t>{4294967295u});
    m.set("a.i32", std::vector<int32_t>{-7, 8});
    m.set("a.f32", std::vector<float>{1.5f, -0.0f});
    m.set("a.bool", std::vector<bool>{true, false, true});
    m.set("a.string", std::vector<std::string>{"", "x", "a string that is longer than sixteen bytes"});
    m.set("a.u64", std::vector<uint64_t>{std::numeric_limits<uint64_t>::max()});
    m.set("a.i64", std::vector<int64_t>{-1});
    m.set("a.f64", std::vector<double>{1e300});
    m.set("a.none", std::vector<double>{});
    m.set("a.a", std::vector<MetaArray>{MetaArray(std::vector<int8_t>{1, 2}),
                                        MetaArray(std::vector<std::string>{"nested"}),
                                        MetaArray(std::vector<MetaArray>{MetaArray(std::vector<bool>{})})});
    return m;
}

GgufWriter writer(const fs::path& path) {
    auto w = GgufWriter::create(path);
    REQUIRE(w);
    return std::move(*w);
}

// A file with one f32 tensor per name, each of 3 elements that start at `first`.
void write_part(const fs::path& path, const Metadata& m, const std::vector<std::string>& names, float first) {
    GgufWriter w = writer(path);
    w.metadata() = m;
    const int64_t ne[] = {3};
    for (const auto& n : names) REQUIRE(w.declare(n, Type::f32, ne).ok());
    REQUIRE(w.begin().ok());
    for (const auto& n : names) {
        const float v[3] = {first, first + 1, first + 2};
        REQUIRE(w.write(n, std::as_bytes(std::span(v))).ok());
    }
    REQUIRE(w.finish().ok());
}

Metadata split_keys(uint16_t no, uint16_t count, int32_t tensors) {
    Metadata m;
    if (no == 0) m.set("general.architecture", "llama");
    m.set("split.no", no);
    m.set("split.count", count);
    m.set("split.tensors.count", tensors);
    return m;
}

}  // namespace

TEST_CASE("all metadata types survive a round trip, in order") {
    const TempDir dir;
    const Metadata m = every_type();
    GgufWriter w = writer(dir / "m.gguf");
    w.metadata() = m;
    REQUIRE(w.begin().ok());
    CHECK(!fs::exists(dir / "m.gguf"));  // appears when it is complete
    REQUIRE(w.finish().ok());
    auto f = GgufFile::open(dir / "m.gguf");
    REQUIRE(f);
    CHECK(f->version == 3);
    CHECK(f->tensors.size() == 0);
    REQUIRE(f->metadata.size() == m.size());
    for (size_t i = 0; i < m.size(); ++i) {
        CAPTURE(m.entries()[i].key);
        CHECK(f->metadata.entries()[i].key == m.entries()[i].key);
        CHECK(f->metadata.entries()[i].value == m.entries()[i].value);
    }
}

TEST_CASE("metadata outlives the file it was read from") {
    const TempDir dir;
    GgufWriter w = writer(dir / "m.gguf");
    w.metadata() = every_type();
    REQUIRE(w.begin().ok());
    REQUIRE(w.finish().ok());
    Metadata copy;
    {
        auto f = GgufFile::open(dir / "m.gguf");
        REQUIRE(f);
        copy = f->metadata;
    }
    fs::remove(dir / "m.gguf");
    CHECK((*copy.strings("a.string"))[2] == "a string that is longer than sixteen bytes");
}

TEST_CASE("tensors survive a round trip: types, shapes, chunks, padding, empty ones") {
    const TempDir dir;
    GgufWriter w = writer(dir / "t.gguf");
    const int64_t one[] = {5}, two[] = {64, 3}, four[] = {2, 3, 1, 2}, none[] = {32, 0};
    REQUIRE(w.declare("first.empty", Type::q8_0, none).ok());
    REQUIRE(w.declare("one", Type::f16, one).ok());
    REQUIRE(w.declare("two", Type::q8_0, two).ok());
    REQUIRE(w.declare("mid.empty", Type::f32, none).ok());
    REQUIRE(w.declare("four", Type::i8, four).ok());
    REQUIRE(w.begin().ok());
    const std::string a(10, 'a'), b(6 * 34, 'b'), c(12, 'c');
    CHECK(w.write("one", bytes_of(a)).ok());
    for (size_t i = 0; i < b.size(); i += 7) CHECK(w.write("two", bytes_of(b.substr(i, 7))).ok());
    CHECK(w.write("mid.empty", {}).ok());
    CHECK(w.write("four", bytes_of(c)).ok());
    REQUIRE(w.finish().ok());

    auto f = GgufFile::open(dir / "t.gguf");
    REQUIRE(f);
    CHECK(f->alignment == 32);
    CHECK(!f->metadata.contains("general.alignment"));
    CHECK(f->metadata.u32("general.quantization_version") == 2u);
    CHECK(f->file_bytes % 32 == 0);
    REQUIRE(f->tensors.size() == 5);
    CHECK(f->tensors.all()[0].name == "first.empty");
    CHECK(f->tensors.all()[0].data.empty());
    const TensorInfo* t = f->tensors.find("two");
    REQUIRE(t);
    CHECK(t->type == Type::q8_0);
    CHECK(t->cols() == 64);
    CHECK(t->rows() == 3);
    CHECK(t->n_dims == 2);
    CHECK(!t->foreign());
    CHECK(text_of(t->data) == b);
    CHECK(text_of(f->tensors.find("one")->data) == a);
    CHECK(text_of(f->tensors.find("four")->data) == c);
    CHECK(f->tensors.find("four")->ne == std::array<int64_t, 4>{2, 3, 1, 2});
    CHECK(shape_text(*f->tensors.find("four")) == "[2, 3, 1, 2]");
    CHECK(!f->tensors.find("five"));
}

TEST_CASE("alignment is stored only when it is not 32, and obeyed") {
    const TempDir dir;
    for (const uint32_t alignment : {1u, 32u, 4096u}) {
        CAPTURE(alignment);
        Metadata m;
        m.set("general.alignment", alignment);
        write_part(dir / "a.gguf", m, {"x", "y"}, 1);
        auto f = GgufFile::open(dir / "a.gguf");
        REQUIRE(f);
        CHECK(f->alignment == alignment);
        CHECK(f->metadata.contains("general.alignment") == (alignment != 32));
        float y = 0;
        std::memcpy(&y, f->tensors.find("y")->data.data() + 8, 4);
        CHECK(y == 3.0f);
    }
}

TEST_CASE("the writer refuses misuse and leaves nothing behind") {
    const TempDir dir;
    {
        GgufWriter w = writer(dir / "w.gguf");
        const int64_t ok[] = {32}, odd[] = {33}, negative[] = {-1}, five[] = {1, 1, 1, 1, 1};
        const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40};
        const std::string x(34, 'x');
        CHECK(!w.declare("", Type::f32, ok));
        CHECK(!w.declare(std::string(64, 'n'), Type::f32, ok));
        CHECK(!w.declare("a", Type::q8_0, odd));
        CHECK(!w.declare("a", Type::f32, negative));
        CHECK(!w.declare("a", Type::f32, five));
        CHECK(!w.declare("a", Type::f32, huge));
        CHECK(!w.declare("a", Type::f32, {}));
        CHECK(!w.write("a", bytes_of(x)));
        CHECK(!w.finish());
        CHECK(w.declare("a", Type::q8_0, ok).ok());
        CHECK(w.declare(std::string(63, 'n'), Type::q8_0, ok).ok());
        REQUIRE(w.begin().ok());
        CHECK(!w.begin());
        CHECK(!w.declare("b", Type::f32, ok));
        CHECK(w.write("b", bytes_of(x)).error().what == "tensor 'b' was written where 'a' is due");
        CHECK(w.write("a", bytes_of(x.substr(0, 30))).ok());
        CHECK(w.finish().error().what == "tensor 'a' is incomplete: 30 of 34 bytes");
        CHECK(w.write("a", bytes_of(x)).error().what == "tensor 'a' got 30 bytes more than its 34");
        CHECK(w.write("a", bytes_of(x.substr(30))).ok());
        CHECK(w.write(std::string(63, 'n'), bytes_of(x)).ok());
        CHECK(!w.write("a", bytes_of(x)));
    }
    CHECK(fs::is_empty(dir.path()));
    for (const bool twice : {true, false}) {
        GgufWriter w = writer(dir / "w.gguf");
        const int64_t ne[] = {1};
        REQUIRE(w.declare("a", Type::f32, ne).ok());
        if (twice)
            REQUIRE(w.declare("a", Type::f32, ne).ok());
        else
            w.metadata().set("general.alignment", uint32_t{48});
        CHECK(w.begin().error().code == ErrorCode::invalid_argument);
    }
    CHECK(!GgufWriter::create(dir / "no such folder/x.gguf"));
}

TEST_CASE("split files: all parts are merged") {
    const TempDir dir;
    CHECK(parse_split_name("a-00002-of-00003.gguf")->part(1) == "a-00001-of-00003.gguf");
    for (const char* bad : {"a.gguf", "a-00000-of-00003.gguf", "a-00004-of-00003.gguf", "a-0001-of-0003.gguf",
                            "a-00001-of-0000x.gguf", "a-00001_of_00003.gguf", "a-00001-of-00003.txt"})
        CHECK_MESSAGE(!parse_split_name(bad), bad);

    write_part(dir / "m-00001-of-00003.gguf", split_keys(0, 3, 3), {"a"}, 1);
    write_part(dir / "m-00002-of-00003.gguf", split_keys(1, 3, 3), {"b"}, 10);
    const auto missing = GgufFile::open(dir / "m-00001-of-00003.gguf");
    REQUIRE(!missing);
    CHECK(missing.error().code == ErrorCode::not_found);
    CHECK(missing.error().what == "part 3 of 3 of the model is missing");

    write_part(dir / "m-00003-of-00003.gguf", split_keys(2, 3, 3), {"c"}, 100);
    auto f = GgufFile::open(dir / "m-00001-of-00003.gguf");
    REQUIRE(f);
    REQUIRE(f->tensors.size() == 3);
    CHECK(f->tensors.all()[2].name == "c");
    float c = 0;
    std::memcpy(&c, f->tensors.find("c")->data.data(), 4);
    CHECK(c == 100.0f);
    CHECK(f->metadata.size() == 1);  // split.* describe parts, not the model
    CHECK(f->owners.size() == 3);
    CHECK(f->file_bytes == fs::file_size(dir / "m-00001-of-00003.gguf") +
                               fs::file_size(dir / "m-00002-of-00003.gguf") +
                               fs::file_size(dir / "m-00003-of-00003.gguf"));
    CHECK(GgufFile::open(dir / "m-00002-of-00003.gguf").error().fix ==
          "open the first part, 'm-00001-of-00003.gguf'");
}

TEST_CASE("split files: contradictions are errors") {
    const TempDir dir;
    const auto second = [&](const Metadata& m, const char* name) {
        write_part(dir / "m-00002-of-00002.gguf", m, {name}, 5);
    };
    const auto what = [&] {
        const auto f = GgufFile::open(dir / "m-00001-of-00002.gguf");
        return f ? std::string("opened") : f.error().what;
    };
    write_part(dir / "m-00001-of-00002.gguf", split_keys(0, 2, 2), {"a"}, 1);
    second(split_keys(1, 2, 2), "b");
    CHECK(what() == "opened");
    second(split_keys(0, 2, 2), "b");
    CHECK(what() == "is named part 2 of 2, but its split keys say part 1 of 2");
    second(split_keys(1, 3, 2), "b");
    CHECK(what() == "is named part 2 of 2, but its split keys say part 2 of 3");
    second(Metadata(), "b");
    CHECK(what() == "is named part 2 of 2, but its split keys say part 1 of 1");
    second(split_keys(1, 2, 2), "a");
    CHECK(what() == "holds two tensors named 'a'");
    second(split_keys(1, 2, 2), "b");
    write_part(dir / "m-00001-of-00002.gguf", split_keys(0, 2, 7), {"a"}, 1);
    CHECK(what() == "the parts hold 2 tensors, split.tensors.count says 7");
    write_part(dir / "m-00001-of-00002.gguf", split_keys(0, 65535, 2), {"a"}, 1);
    CHECK(what() == "is named part 1 of 2, but its split keys say part 1 of 65535");
    write_part(dir / "renamed.gguf", split_keys(0, 2, 2), {"a"}, 1);
    CHECK(GgufFile::open(dir / "renamed.gguf").error().code == ErrorCode::invalid_argument);
    write_part(dir / "one-00001-of-00001.gguf", Metadata(), {"a"}, 1);
    CHECK(GgufFile::open(dir / "one-00001-of-00001.gguf").ok());
}

TEST_CASE("foreign files are refused by name") {
    const auto what = [](std::string_view bytes) {
        const auto f = parse_gguf(bytes);
        return f ? std::string("opened") : f.error().what;
    };
    CHECK(what(gguf_head(0, 0, 3).s) == "opened");
    CHECK(what(gguf_head(0, 0, 2).s) == "opened");
    CHECK(what(gguf_head(0, 0, 1).s) == "is GGUF version 1, which has 32-bit counts");
    CHECK(what(gguf_head(0, 0, 4).s) == "is GGUF version 4");
    CHECK(what(gguf_head(0, 0, 0x03000000).s) == "is a big-endian GGUF file");
    CHECK(what("") == "is empty");
    CHECK(what("tjgg\3\0\0\0") == "is a GGML file from before GGUF");
    CHECK(what("version https://git-lfs.github.com/spec/v1\noid sha256:0\n") ==
          "is a Git LFS pointer, not the file itself");
    CHECK(what("PK\3\4") == "is not a GGUF file: it does not start with 'GGUF'");
}
