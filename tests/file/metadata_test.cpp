// Metadata: order, replacement, and conversions that keep the value or refuse.
// Plus the one-line descriptions that `inspect` prints.
#include "ggml/file/metadata.h"

#include <limits>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/file/quote.h"

using namespace nibble;

TEST_CASE("integers of every width convert when the value fits") {
    Metadata m("f.gguf");
    m.set("u8", uint8_t{255});
    m.set("i8", int8_t{-1});
    m.set("u16", uint16_t{65535});
    m.set("i16", int16_t{7});
    m.set("u32", uint32_t{4294967295u});
    m.set("i32", int32_t{-5});
    m.set("u64", uint64_t{1} << 32);
    m.set("i64", int64_t{4294967295});
    m.set("big", std::numeric_limits<uint64_t>::max());
    CHECK(m.u32("u8") == 255u);
    CHECK(m.u32("u16") == 65535u);
    CHECK(m.u32("i16") == 7u);
    CHECK(m.u32("u32") == 4294967295u);
    CHECK(m.u32("i64") == 4294967295u);
    CHECK(!m.u32("i8"));
    CHECK(!m.u32("i32"));
    CHECK(!m.u32("u64"));
    CHECK(m.u64("u64") == uint64_t{1} << 32);
    CHECK(m.get<int32_t>("i32") == -5);
    CHECK(!m.get<int32_t>("u32"));
    CHECK(m.get<int64_t>("i8") == -1);
    CHECK(!m.get<int64_t>("big"));
    CHECK(m.u64("big") == std::numeric_limits<uint64_t>::max());
    CHECK(!m.u32("absent"));
}

TEST_CASE("floats take integers and doubles, booleans take 0 and 1, strings take nothing else") {
    Metadata m("f.gguf");
    m.set("f32", 0.5f);
    m.set("f64", 0.25);
    m.set("wide", 1e300);
    m.set("inf", std::numeric_limits<double>::infinity());
    m.set("int", int32_t{-3});
    m.set("yes", true);
    m.set("one", uint8_t{1});
    m.set("two", uint8_t{2});
    m.set("text", "1");
    CHECK(m.f32("f32") == 0.5f);
    CHECK(m.f32("f64") == 0.25f);
    CHECK(!m.f32("wide"));
    CHECK(m.f32("inf") == std::numeric_limits<float>::infinity());
    CHECK(m.f32("int") == -3.0f);
    CHECK(!m.f32("yes"));
    CHECK(!m.f32("text"));
    CHECK(m.boolean("yes") == true);
    CHECK(m.boolean("one") == true);
    CHECK(!m.boolean("two"));
    CHECK(!m.boolean("f32"));
    CHECK(!m.u32("yes"));
    CHECK(!m.u32("f32"));
    CHECK(m.str("text") == "1");
    CHECK(!m.str("int"));
}

TEST_CASE("arrays convert element by element") {
    Metadata m("f.gguf");
    m.set("i32", std::vector<int32_t>{1, -2, 3});
    m.set("u8", std::vector<uint8_t>{0, 255});
    m.set("flags", std::vector<bool>{true, false});
    m.set("f32", std::vector<float>{0.5f});
    m.set("u64", std::vector<uint64_t>{uint64_t{1} << 63});
    m.set("text", std::vector<std::string>{"a", "", "ccc"});
    m.set("scalar", int32_t{1});
    CHECK(m.ints("i32") == std::vector<int64_t>{1, -2, 3});
    CHECK(m.ints("u8") == std::vector<int64_t>{0, 255});
    CHECK(m.ints("flags") == std::vector<int64_t>{1, 0});
    CHECK(!m.ints("f32"));
    CHECK(!m.ints("u64"));
    CHECK(!m.ints("text"));
    CHECK(!m.ints("scalar"));
    CHECK(m.floats("i32") == std::vector<float>{1, -2, 3});
    CHECK(m.get<std::vector<int32_t>>("u8") == std::vector<int32_t>{0, 255});
    const auto strings = m.strings("text");
    REQUIRE(strings);
    REQUIRE(strings->size() == 3);
    CHECK((*strings)[0] == "a");
    CHECK((*strings)[1].empty());
    CHECK((*strings)[2] == "ccc");
    CHECK(!m.strings("i32"));
}

TEST_CASE("a copied string list outlives the metadata it came from") {
    MetaValue copy;
    {
        Metadata m;
        m.set("k", std::vector<std::string>{"one", "a string that is too long to be stored inline"});
        copy = *m.find("k");
    }
    CHECK(std::get<StringList>(std::get<MetaArray>(copy).items).views()[1] ==
          "a string that is too long to be stored inline");
}

TEST_CASE("required keys name file and key") {
    Metadata m("f.gguf");
    m.set("n", -5);
    m.set("list", std::vector<float>{1, 2, 3});
    CHECK(m.require_u32("absent").error().code == ErrorCode::not_found);
    CHECK(m.require_u32("absent").error().message() ==
          "f.gguf: metadata key 'absent' is missing (the file is incomplete or was written for another "
          "program)");
    CHECK(m.require_u32("n").error().code == ErrorCode::corrupt);
    CHECK(m.require_u32("n").error().what ==
          "metadata key 'n' must be an integer from 0 to 2^32 - 1, not i32 -5");
    CHECK(m.require_str("list").error().what == "metadata key 'list' must be a string, not f32[3] [1, 2, …]");
    CHECK(*m.get_or<uint32_t>("absent", 9) == 9);
    CHECK(!m.get_or<uint32_t>("n", 9));
    CHECK(*m.get_or<int32_t>("n", 9) == -5);
}

TEST_CASE("keys keep their order through replacement and removal") {
    Metadata m;
    for (const char* key : {"a", "b", "c", "d"}) m.set(key, 1);
    m.set("b", 2);
    CHECK(m.erase("a"));
    CHECK(!m.erase("a"));
    CHECK(!m.insert("c", 3));
    REQUIRE(m.size() == 3);
    CHECK(m.entries()[0].key == "b");
    CHECK(m.u32("b") == 2u);
    CHECK(m.u32("c") == 1u);
    CHECK(m.u32("d") == 1u);
    m.set("d", 4);
    CHECK(m.entries()[2].key == "d");
    CHECK(m.u32("d") == 4u);
}

TEST_CASE("descriptions are one printable line") {
    CHECK(describe(uint8_t{200}) == "200");
    CHECK(describe(true) == "true");
    CHECK(describe("two\nlines\x1b[2J") == "'two\\x0alines\\x1b[2J'");
    CHECK(describe(std::string("abcdef"), 4, 3) == "'abc…'");
    CHECK(describe(std::string("aéé"), 4, 2) == "'a…'");  // no half character
    CHECK(describe(std::vector<std::string>{"x", "y", "z"}, 2) == "string[3] ['x', 'y', …]");
    CHECK(describe(std::vector<bool>{true, false}) == "bool[2] [true, false]");
    CHECK(describe(std::vector<MetaArray>{MetaArray(std::vector<int8_t>{1})}) == "array[1] [i8[1] [1]]");
    CHECK(describe(std::vector<float>{}) == "f32[0] []");
    CHECK(quote(std::string_view("\0\x7f", 2)) == "'\\x00\\x7f'");
}
