// Codecs of every type in the list: geometry, 16-bit floats exhaustively, exact blocks.
// Loops over the list, so a new format is covered without an edit here.
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "ggml/types/list.h"

using namespace nibble;

TEST_CASE("the list has unique ids and names, and its sizes agree") {
    std::set<uint32_t> ids;
    std::set<std::string_view> names;
    for (const TypeInfo& t : all_types()) {
        CHECK(ids.insert(static_cast<uint32_t>(t.type)).second);
        CHECK(names.insert(t.name).second);
        CHECK(find_type(t.name) == t.type);
        CHECK(*row_bytes(t.type, t.block_len * 3) == t.block_bytes * 3u);
        if (t.block_len > 1) CHECK(!row_bytes(t.type, t.block_len + 1));
        CHECK(!row_bytes(t.type, -1));
    }
    CHECK(!type_from_id(4));
    CHECK(!type_from_id(77));
    CHECK(*type_from_id(30) == Type::bf16);
}

TEST_CASE("f16 and bf16: every value survives a round trip, rounding is to nearest even") {
    for (uint32_t h = 0; h < 0x10000; ++h) {
        const auto u = static_cast<uint16_t>(h);
        const float f = f16_to_f32(u), b = bf16_to_f32(u);
        if (std::isnan(f))
            CHECK(std::isnan(f16_to_f32(f32_to_f16(f))));
        else
            CHECK(f32_to_f16(f) == u);
        if (std::isnan(b))
            CHECK(std::isnan(bf16_to_f32(f32_to_bf16(b))));
        else
            CHECK(f32_to_bf16(b) == u);
    }
    CHECK(f32_to_f16(65519.996f) == 0x7bff);
    CHECK(f32_to_f16(65520.0f) == 0x7c00);
    CHECK(f32_to_f16(0x1p-25f) == 0);  // a tie goes to even
    CHECK(f32_to_f16(0x1.8p-25f) == 1);
    CHECK(f32_to_f16(1.0f + 0x1p-11f) == 0x3c00);
    CHECK(f32_to_bf16(1.0f + 0x1p-8f) == 0x3f80);
    CHECK(f32_to_bf16(1.0f + 0x1.8p-8f) == 0x3f81);
}

TEST_CASE("q8_0: exact bytes of a hand-made block") {
    float x[32] = {};
    x[0] = 127;
    x[1] = -63.5f;
    x[2] = 0.49f;
    std::byte block[34];
    info(Type::q8_0).encode(x, block, 32);
    CHECK(std::to_integer<int>(block[0]) == 0x00);
    CHECK(std::to_integer<int>(block[1]) == 0x3c);  // d = 1
    CHECK(static_cast<int8_t>(block[2]) == 127);
    CHECK(static_cast<int8_t>(block[3]) == -64);  // halves go away from zero
    CHECK(static_cast<int8_t>(block[4]) == 0);
}
