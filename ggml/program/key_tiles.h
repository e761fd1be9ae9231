// Layout::key_tiles: a cache of keys in tiles of 16 rows, column after column.
// Scores of 16 keys then need neither a transposition nor a horizontal sum.
#pragma once

#include <cstdint>
#include <span>

#include "ggml/program/tensor.h"

namespace nibble {

// Rows r0 .. r0 + 15 (r0 a multiple of 16) take the bytes they would take as rows, ordered [unit][row]. A
// unit is a number; of a type with blocks, the scale of a block or one byte of its codes. For caches whose
// pages are whole tiles.
inline constexpr int64_t key_tile_rows = 16;

inline bool fits_key_tiles(Type type, int64_t page_size) {
    const bool known = info(type).block_len == 1 || type == Type::q8_0 || type == Type::q4_0;
    return known && page_size % key_tile_rows == 0;
}

// Writes the row `encoded` of the cache's type into row r.
void store_key_tile_row(const Tensor& cache, int64_t r, const std::byte* encoded);
void load_key_tile_row(const Tensor& cache, int64_t r, std::byte* encoded);

// Whole tiles as rows in place, and back. bytes.size() is a multiple of a tile's.
void rows_from_key_tiles(const Tensor& shape, std::span<std::byte> bytes);
void key_tiles_from_rows(const Tensor& shape, std::span<std::byte> bytes);

}  // namespace nibble
