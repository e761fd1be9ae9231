// Where quantized activations (Int8Rows) lie in an instruction's scratch memory.
// Codes come first, then blocks, then halves, each at a cache line.
#pragma once

#include "ggml/base/checked.h"
#include "ggml/cpu/kernel_table.h"

namespace nibble::cpu {

inline constexpr int64_t cache_line = 64;

struct Int8Layout {
    int64_t blocks, halves, bytes;  // from the start; codes come first
};

inline Int8Layout int8_layout(int64_t rows, int64_t k) {
    const int64_t n = rows * (k / int8_block), blocks = round_up(rows * k, cache_line);
    const int64_t halves = blocks + round_up(n * int64_t{sizeof(Int8Block)}, cache_line);
    return {blocks, halves, halves + round_up(n * int64_t{sizeof(Int8Halves)}, cache_line)};
}

}  // namespace nibble::cpu
