// Rows into tiles of keys and back, unit by unit.
// Attention kernels do not pass through here; the write of a new key does.
#include "ggml/program/key_tiles.h"

#include <cstring>
#include <vector>

namespace nibble {
namespace {

// n units of a row, which lie a tile's height apart.
template <size_t bytes>
void scatter(const std::byte* from, int64_t n, std::byte* to) {
    for (int64_t i = 0; i < n; ++i, from += bytes, to += key_tile_rows * static_cast<int64_t>(bytes))
        std::memcpy(to, from, bytes);
}
template <size_t bytes>
void gather(const std::byte* from, int64_t n, std::byte* to) {
    for (int64_t i = 0; i < n; ++i, from += key_tile_rows * static_cast<int64_t>(bytes), to += bytes)
        std::memcpy(to, from, bytes);
}

// Calls fn.operator()<bytes>(at, n) for every run of n units of as many bytes, `at` bytes from the row's
// start.
template <class Fn>
void each_run(const Tensor& cache, Fn fn) {
    const TypeInfo& type = info(cache.type);
    if (type.block_len == 1)
        return type.block_bytes == 2 ? fn.template operator()<2>(0, cache.cols)
                                     : fn.template operator()<4>(0, cache.cols);
    const int64_t row = cache.cols / type.block_len * type.block_bytes;
    for (int64_t at = 0; at < row; at += type.block_bytes) {
        fn.template operator()<2>(at, 1);  // the scale
        fn.template operator()<1>(at + 2, type.block_bytes - 2);
    }
}

// Where the unit `at` bytes from the start of row r lies, if it has `bytes`.
int64_t unit_offset(const Tensor& cache, int64_t r, int64_t at, int64_t bytes) {
    const int64_t in_tile = r % key_tile_rows;
    return (r - in_tile) * cache.stride + at * key_tile_rows + in_tile * bytes;
}

// One tile of `shape`'s type and columns at a time, through a copy.
template <class Fn>
void each_tile(const Tensor& shape, std::span<std::byte> bytes, Fn fn) {
    const auto tile_bytes = static_cast<size_t>(key_tile_rows * shape.stride);
    std::vector<std::byte> copy(tile_bytes);
    for (size_t at = 0; at + tile_bytes <= bytes.size(); at += tile_bytes) {
        std::memcpy(copy.data(), bytes.data() + at, tile_bytes);
        Tensor tile = shape;
        tile.rows = key_tile_rows;
        for (int64_t r = 0; r < key_tile_rows; ++r) fn(tile, r, copy.data(), bytes.data() + at);
    }
}

}  // namespace

void store_key_tile_row(const Tensor& cache, int64_t r, const std::byte* encoded) {
    each_run(cache, [&]<size_t bytes>(int64_t at, int64_t n) {
        scatter<bytes>(encoded + at, n, cache.data + unit_offset(cache, r, at, bytes));
    });
}

void load_key_tile_row(const Tensor& cache, int64_t r, std::byte* encoded) {
    each_run(cache, [&]<size_t bytes>(int64_t at, int64_t n) {
        gather<bytes>(cache.data + unit_offset(cache, r, at, bytes), n, encoded + at);
    });
}

void rows_from_key_tiles(const Tensor& shape, std::span<std::byte> bytes) {
    each_tile(shape, bytes, [](Tensor& tile, int64_t r, std::byte* from, std::byte* to) {
        tile.data = from;
        load_key_tile_row(tile, r, to + r * tile.stride);
    });
}

void key_tiles_from_rows(const Tensor& shape, std::span<std::byte> bytes) {
    each_tile(shape, bytes, [](Tensor& tile, int64_t r, std::byte* from, std::byte* to) {
        tile.data = to;
        store_key_tile_row(tile, r, from + r * tile.stride);
    });
}

}  // namespace nibble
