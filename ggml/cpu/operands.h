// Operands: the activations of a matmul as its weights' kernels read them, in an instruction's scratch
// memory. Codes of int8 come first, then their blocks and halves, then numbers of bf16, each at a cache line.
#pragma once

#include <algorithm>
#include <span>

#include "ggml/base/checked.h"
#include "ggml/cpu/kernel_table.h"

namespace nibble::cpu {

inline constexpr int64_t cache_line = 64;

class Operands {
  public:
    // Rows of k values, for these weights.
    Operands(const KernelTable& kernels, std::span<const Tensor> weights, int64_t rows, int64_t k)
        : k_(k), blocks_(k / int8_block), stride_(round_up(k, bf16_step)) {
        for (const Tensor& w : weights) {
            const Operand operand = kernels.matmul.operand(info(w.type));
            (operand == Operand::int8 ? int8_ : operand == Operand::bf16 ? bf16_ : f32_) = true;
        }
        const auto after = [](int64_t at, int64_t size) { return round_up(at + size, cache_line); };
        const int64_t n = int8_ ? rows * blocks_ : 0;
        blocks_at_ = after(0, n * int8_block);
        halves_at_ = after(blocks_at_, n * int64_t{sizeof(Int8Block)});
        bf16_at_ = after(halves_at_, n * int64_t{sizeof(Int8Halves)});
        bytes_ = after(bf16_at_, bf16_ ? rows * stride_ * 2 : 0);
    }
    bool f32() const { return f32_; }  // some weight reads them as they are
    bool prepared() const { return int8_ || bf16_; }
    int64_t bytes() const { return bytes_; }
    void place(std::byte* memory) { memory_ = memory; }

    // Columns [c, c + n) of `row`, from x; c is a multiple of 32. Rows [first, end) are one matrix, which has
    // tiles of its own.
    void write(const KernelTable& kernels, int64_t first, int64_t end, int64_t row, int64_t c, int64_t n,
               const float* x) const {
        if (bf16_) kernels.matmul.round(x, n, bf16() + row * stride_ + c);
        if (!int8_) return;
        const int64_t tile_rows = kernels.pack.tile_rows,
                      tile = first + (row - first) / tile_rows * tile_rows;
        const int64_t h = std::min(tile_rows, end - tile);
        const int64_t at = tile * blocks_ + c / int8_block * h + (row - tile);
        kernels.pack.quantize(x, n, h, codes() + at * int8_block, blocks() + at, halves() + at);
    }

    // The rows from `row` on, the first of a tile.
    void give(MatmulBlock& b, int64_t row) const {
        b.xb_stride = stride_;
        if (bf16_) b.xb = bf16() + row * stride_;
        if (int8_) b.xq = {codes() + row * k_, blocks() + row * blocks_, halves() + row * blocks_};
    }

  private:
    int8_t* codes() const { return reinterpret_cast<int8_t*>(memory_); }
    Int8Block* blocks() const { return reinterpret_cast<Int8Block*>(memory_ + blocks_at_); }
    Int8Halves* halves() const { return reinterpret_cast<Int8Halves*>(memory_ + halves_at_); }
    uint16_t* bf16() const { return reinterpret_cast<uint16_t*>(memory_ + bf16_at_); }

    bool f32_ = false, int8_ = false, bf16_ = false;
    int64_t k_, blocks_, stride_;  // blocks: of a row
    int64_t blocks_at_, halves_at_, bf16_at_, bytes_;
    std::byte* memory_ = nullptr;
};

}  // namespace nibble::cpu
