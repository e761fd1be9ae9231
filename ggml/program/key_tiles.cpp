// Rows into tiles of keys and back, element by element.
// Attention kernels do not pass through here; the write of a new key does.
#include "ggml/program/key_tiles.h"

#include <cstring>
#include <vector>

namespace nibble {
namespace {

// A key's elements lie a tile's height apart.
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
    std::byte* to = cache.data + key_tile_offset(cache, r);
    info(cache.type).block_bytes == 2 ? scatter<2>(encoded, cache.cols, to)
                                      : scatter<4>(encoded, cache.cols, to);
}

void load_key_tile_row(const Tensor& cache, int64_t r, std::byte* encoded) {
    const std::byte* from = cache.data + key_tile_offset(cache, r);
    info(cache.type).block_bytes == 2 ? gather<2>(from, cache.cols, encoded)
                                      : gather<4>(from, cache.cols, encoded);
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
