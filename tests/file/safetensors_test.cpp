// safetensors: dtypes, shapes, the header's rules, shards and their index.
// Files are written out as text, so the header is what stands here.
#include "ggml/file/safetensors.h"

#include <doctest/doctest.h>

#include "tests/file/support.h"

using namespace nibble;
using namespace nibble::test;

namespace {

Result<std::vector<TensorInfo>> parse(const std::string& bytes) {
    return parse_safetensors(bytes_of(bytes), "x.safetensors");
}

std::string what(const std::string& bytes) {
    const auto r = parse(bytes);
    return r ? std::string("parsed") : r.error().what;
}

// One tensor "w" and as many data bytes as said.
std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets, size_t data) {
    return safetensors(
        cat(R"({"w":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)", offsets, "}}"),
        std::string(data, 'd'));
}

}  // namespace

TEST_CASE("shapes become ne, reversed, and data stays in the file") {
    const std::string file = safetensors(
        R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},)"
        R"("a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}   )",
        "aaaaaaaaaaaabbbbbbbb");
    const auto r = parse(file);
    REQUIRE(r);
    REQUIRE(r->size() == 2);
    const TensorInfo& a = (*r)[0];  // in the order of the data
    CHECK(a.name == "a");
    CHECK(a.type == Type::bf16);
    CHECK(a.cols() == 3);
    CHECK(a.rows() == 2);
    CHECK(a.n_dims == 2);
    CHECK(text_of(a.data) == "aaaaaaaaaaaa");
    CHECK(reinterpret_cast<const char*>(a.data.data()) == file.data() + file.size() - 20);
    CHECK(text_of((*r)[1].data) == "bbbbbbbb");
}

TEST_CASE("rank 0, zero sizes, high ranks and files without tensors are legal") {
    CHECK(parse(one("F32", "[]", "[0,4]", 4)).value()[0].elements() == 1);
    CHECK(parse(one("F32", "[]", "[0,4]", 4)).value()[0].n_dims == 0);
    CHECK(parse(one("F32", "[3,0,2]", "[0,0]", 0)).value()[0].rows() == 0);
    CHECK(parse(safetensors("{}", "")).value().empty());
    const auto five = parse(one("I8", "[2,3,4,5,6]", "[0,720]", 720)).value();
    CHECK(five[0].ne == std::array<int64_t, 4>{6, 5, 4, 6});
    CHECK(five[0].n_dims == 4);
}

TEST_CASE("every dtype has its size; those without a Type keep their name") {
    struct Case {
        const char* dtype;
        size_t bytes;  // of a shape [2, 8]
        Type type;
        bool foreign;
    };
    const Case cases[] = {
        {"F64", 128, Type::f64, false},      {"F32", 64, Type::f32, false},
        {"F16", 32, Type::f16, false},       {"BF16", 32, Type::bf16, false},
        {"I64", 128, Type::i64, false},      {"I32", 64, Type::i32, false},
        {"I16", 32, Type::i16, false},       {"I8", 16, Type::i8, false},
        {"U64", 128, Type::i64, true},       {"U32", 64, Type::i32, true},
        {"U16", 32, Type::i16, true},        {"U8", 16, Type::i8, true},
        {"BOOL", 16, Type::i8, true},        {"C64", 128, Type::i64, true},
        {"F8_E4M3", 16, Type::i8, true},     {"F8_E5M2", 16, Type::i8, true},
        {"F8_E8M0", 16, Type::i8, true},     {"F8_E4M3FNUZ", 16, Type::i8, true},
        {"F8_E5M2FNUZ", 16, Type::i8, true}, {"F6_E2M3", 12, Type::i8, true},
        {"F6_E3M2", 12, Type::i8, true},     {"F4", 8, Type::i8, true},
    };
    for (const Case& c : cases) {
        CAPTURE(c.dtype);
        const std::string file = one(c.dtype, "[2,8]", cat("[0,", c.bytes, "]"), c.bytes);
        const auto r = parse(file);
        REQUIRE(r);
        const TensorInfo& t = (*r)[0];
        CHECK(t.type == c.type);
        CHECK(t.foreign() == c.foreign);
        if (c.foreign) CHECK(t.type_name() == c.dtype);
        CHECK(t.rows() == 2);
        CHECK(t.data.size() == static_cast<size_t>(t.rows()) * *row_bytes(t.type, t.cols()));
        CHECK(!parse(one(c.dtype, "[2,8]", cat("[0,", c.bytes + 1, "]"), c.bytes + 1)));
    }
    // Rows of half a byte too many: bytes straddle rows, so the tensor is one row of bytes.
    const std::string straddling = one("F4", "[2,3]", "[0,3]", 3);
    CHECK(parse(straddling).value()[0].ne == std::array<int64_t, 4>{3, 1, 1, 1});
    CHECK(what(one("F4", "[3]", "[0,2]", 2)) == "tensor 'w' has an impossible shape for dtype F4");
    CHECK(parse(one("F128", "[2]", "[0,32]", 32)).error().code == ErrorCode::unsupported);
}

TEST_CASE("a header that lies is refused") {
    CHECK(what("").find("the file ends inside field 'header length'") == 0);
    CHECK(what(Bytes().u64(100'000'001).s).find("at most 100000000 are allowed") != std::string::npos);
    CHECK(what(Bytes().u64(99'999'999).text("{}").s).find("the file ends inside field 'header'") == 0);
    CHECK(what(safetensors(" {}", "")).find("no JSON object") != std::string::npos);
    CHECK(what(safetensors("[]", "")).find("no JSON object") != std::string::npos);
    CHECK(what(safetensors("", "")).find("no JSON object") != std::string::npos);
    CHECK(what(safetensors("{}{}", "")) == "is not valid JSON: wrong at byte 3");
    CHECK(what(safetensors("{\"\xff\":1}", "")).find("is not valid JSON") == 0);
    CHECK(what(safetensors(R"({"__metadata__":{"a":1}})", "")).find("__metadata__") != std::string::npos);
    CHECK(what(safetensors(R"({"w":3})", "")) == "tensor 'w' is not described by a JSON object");
    CHECK(what(safetensors(R"({"w":{}})", "")) == "tensor 'w' has no dtype");
    CHECK(what(safetensors(R"({"w":{"dtype":"F32"}})", "")).find("has no valid shape") != std::string::npos);
    CHECK(what(one("F32", "[-1]", "[0,4]", 4)).find("has no valid shape") != std::string::npos);
    CHECK(what(one("F32", "[1.0]", "[0,4]", 4)).find("has no valid shape") != std::string::npos);
    CHECK(what(one("F32", "[9223372036854775808]", "[0,4]", 4)).find("has no valid shape") !=
          std::string::npos);
    CHECK(what(one("F32", "[1e999]", "[0,4]", 4)).find("cannot be represented") != std::string::npos);
    CHECK(what(one("F32", "[4294967296,4294967296]", "[0,4]", 4)).find("impossible shape") !=
          std::string::npos);
    CHECK(what(one("F32", "[0,4294967296,4294967296]", "[0,0]", 0)).find("impossible shape") !=
          std::string::npos);
    CHECK(what(one("F32", "[1]", "[4]", 4)).find("data_offsets") != std::string::npos);
    CHECK(what(one("F32", "[1]", "[4,0]", 4)).find("data_offsets") != std::string::npos);
    CHECK(what(one("F32", "[1]", "[0,8]", 4)) == "tensor 'w' ends at byte 8 of the data, which has 4");
    CHECK(what(one("F32", "[1]", "[0,8]", 8)) == "tensor 'w' has 8 bytes, its shape and dtype need 4");
    CHECK(what(one("F32", "[1]", "[0,4]", 5)) == "the tensors end at byte 4 of the data, which has 5");
    CHECK(what(one("F32", "[1]", "[4,8]", 8)).find("starts at byte 4") != std::string::npos);
    CHECK(what(safetensors(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
                           R"("b":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})",
                           "ddd")) == "tensor 'b' starts at byte 1 of the data, the one before ends at 2");
    CHECK(what(safetensors(R"({"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]},)"
                           R"("a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]}})",
                           "")) == "names 'a' twice");
    CHECK(what("version https://git-lfs.github.com/spec/v1\n") ==
          "is a Git LFS pointer, not the file itself");
}

TEST_CASE("depth bombs stop before the parser") {
    const size_t n = 1'000'000;
    CHECK(what(safetensors(R"({"a":)" + std::string(n, '['), "")) == "nests JSON deeper than 64 levels");
    std::string objects;
    for (size_t i = 0; i < n; ++i) objects += R"({"a":)";
    CHECK(what(safetensors(objects, "")) == "nests JSON deeper than 64 levels");
    CHECK(what(safetensors(R"({"a[[[[\"[[[[":)" + std::string(60, '[') + std::string(60, ']') + "}", "")) ==
          "tensor 'a[[[[\"[[[[' is not described by a JSON object");
}

TEST_CASE("shards: the index places every tensor") {
    const TempDir dir;
    const auto index = [&](std::string_view map) {
        write_file(dir / "model.safetensors.index.json",
                   cat(R"({"metadata":{"total_size":6},"weight_map":)", map, "}"));
        return open_safetensors_index(dir / "model.safetensors.index.json");
    };
    const auto shard = [](const char* name) {
        return safetensors(cat(R"({")", name, R"(":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}})"), name);
    };
    write_file(dir / "s1.safetensors", shard("aaa"));
    write_file(dir / "s2.safetensors", shard("bbb"));
    {
        const auto m = index(R"({"bbb":"s2.safetensors","aaa":"s1.safetensors"})");
        REQUIRE(m);
        REQUIRE(m->tensors.size() == 2);
        CHECK(text_of(m->tensors.find("bbb")->data) == "bbb");
        CHECK(m->owners.size() == 2);
    }
    const auto error = [&](std::string_view map) { return index(map).error().message(); };
    CHECK(error(R"({"aaa":"s2.safetensors"})").find("lacks tensor 'aaa'") != std::string::npos);
    CHECK(error(R"({"aaa":"s3.safetensors","b":"s4.safetensors"})").find("is missing (2 of 2 shards are)") !=
          std::string::npos);
    for (const char* path :
         {"../s1.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "a\\\\b", "a\\u0000b"})
        CHECK_MESSAGE(error(cat(R"({"aaa":")", path, R"("})")).find("no file name within the folder") !=
                          std::string::npos,
                      path);
    CHECK(error(R"({"aaa":3})").find("in something") != std::string::npos);
    CHECK(error("{}").find("has no weight_map") != std::string::npos);
    CHECK(error("[]").find("has no weight_map") != std::string::npos);
    write_file(dir / "s2.safetensors", shard("bbb").substr(0, 60));
    CHECK(error(R"({"aaa":"s1.safetensors","bbb":"s2.safetensors"})").find("s2.safetensors") !=
          std::string::npos);
}
