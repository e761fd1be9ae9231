// Layout::key_tiles: a cache of keys in tiles of 16 rows, column after column.
// Scores of 16 keys then need neither a transposition nor a horizontal sum.
#pragma once

#include <cstdint>
#include <span>

#include "ggml/program/tensor.h"

namespace nibble {

// Rows r0 .. r0 + 15 (r0 a multiple of 16) take the bytes they would take as rows, ordered [column][row].
// Only for types of one element per block, and for caches whose pages are whole tiles.
inline constexpr int64_t key_tile_rows = 16;

inline bool fits_key_tiles(Type type, int64_t page_size) {
    return info(type).block_len == 1 && page_size % key_tile_rows == 0;
}

// Byte of element (r, 0); a column further is key_tile_rows elements on.
inline int64_t key_tile_offset(const Tensor& t, int64_t r) {
    const int64_t first = r / key_tile_rows * key_tile_rows;
    return first * t.stride + (r - first) * info(t.type).block_bytes;
}

// Writes the row `encoded` of the cache's type into row r.
void store_key_tile_row(const Tensor& cache, int64_t r, const std::byte* encoded);
void load_key_tile_row(const Tensor& cache, int64_t r, std::byte* encoded);

// Whole tiles as rows in place, and back. bytes.size() is a multiple of a tile's.
void rows_from_key_tiles(const Tensor& shape, std::span<std::byte> bytes);
void key_tiles_from_rows(const Tensor& shape, std::span<std::byte> bytes);

}  // namespace nibble
