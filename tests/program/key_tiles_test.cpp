// Caches of keys in tiles: rows go in and come back, and the bytes lie where the header says.
// Attention over such caches is checked in the sweep and in tests/cpu.
#include "ggml/program/key_tiles.h"

#include <vector>

#include <doctest/doctest.h>

using namespace nibble;

namespace {

constexpr int64_t rows = 2 * key_tile_rows, cols = 64;

struct Cache {
    std::vector<std::byte> bytes;
    Tensor tensor;
    explicit Cache(Type type) {
        const auto stride = static_cast<int64_t>(*row_bytes(type, cols));
        bytes.resize(static_cast<size_t>(rows * stride));
        tensor = {bytes.data(), rows, cols, stride, type, Layout::key_tiles};
    }
};

// Different in every byte of a row and in every row.
std::vector<std::byte> row_of(const Cache& c, int64_t r) {
    std::vector<std::byte> row(static_cast<size_t>(c.tensor.stride));
    for (size_t i = 0; i < row.size(); ++i)
        row[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(r) * 13);
    return row;
}

}  // namespace

TEST_CASE("what is stored into tiles of keys is loaded again, row by row and as a whole") {
    for (const Type type : {Type::f32, Type::f16, Type::bf16, Type::q8_0, Type::q4_0}) {
        INFO(info(type).name);
        Cache c(type);
        REQUIRE(fits_key_tiles(type, rows));
        CHECK_FALSE(fits_key_tiles(type, rows + 1));
        std::vector<std::byte> plain;
        for (int64_t r = 0; r < rows; ++r) {
            const auto row = row_of(c, r);
            store_key_tile_row(c.tensor, r, row.data());
            plain.insert(plain.end(), row.begin(), row.end());
        }
        for (int64_t r = 0; r < rows; ++r) {
            auto row = row_of(c, rows);
            load_key_tile_row(c.tensor, r, row.data());
            CHECK(row == row_of(c, r));
        }
        std::vector<std::byte> whole = c.bytes;
        rows_from_key_tiles(c.tensor, whole);
        CHECK(whole == plain);
        key_tiles_from_rows(c.tensor, whole);
        CHECK(whole == c.bytes);
    }
    CHECK_FALSE(fits_key_tiles(Type::q4_k, rows));
}

TEST_CASE("tiles of keys are ordered by unit, then row: numbers, or scales and bytes of codes") {
    const int64_t r = key_tile_rows + 3;  // the fourth row of the second tile
    const auto byte_of = [&](Type type, int64_t in_row, int64_t unit_at, int64_t unit_bytes) {
        Cache c(type);
        const auto row = row_of(c, r);
        store_key_tile_row(c.tensor, r, row.data());
        const int64_t at = key_tile_rows * c.tensor.stride + unit_at * key_tile_rows + 3 * unit_bytes;
        return c.bytes[static_cast<size_t>(at + in_row - unit_at)] == row[static_cast<size_t>(in_row)];
    };
    CHECK(byte_of(Type::f16, 2 * 5 + 1, 2 * 5, 2));  // the second byte of number 5
    CHECK(byte_of(Type::q8_0, 34, 34, 2));           // the second block's scale
    CHECK(byte_of(Type::q8_0, 35, 34, 2));
    CHECK(byte_of(Type::q8_0, 34 + 2 + 9, 34 + 2 + 9, 1));  // its tenth code
    CHECK(byte_of(Type::q4_0, 18 + 2 + 15, 18 + 2 + 15, 1));
}
