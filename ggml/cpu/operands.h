// Operands: the activations of a matmul as its weights' kernels read them, in an instruction's scratch
// memory. Codes of int8 come first, then their blocks and halves, then numbers of bf16, each at a cache line.
#pragma once

#include <algorithm>
#include <span>

#include "ggml/base/checked.h"
#include "ggml/cpu/exec.h"

namespace nibble::cpu {

inline constexpr int64_t cache_line = 64;
static_assert(bf16_step == int8_block);  // columns are cut at multiples of both

class Operands {
  public:
    // Rows of k values, for these weights; each weight meets `together` of them, or about so many. More rows
    // take more bytes, whatever they become.
    Operands(const Exec& exec, std::span<const Tensor> weights, int64_t rows, int64_t together, int64_t k)
        : exec_(exec), together_(together), k_(k), blocks_(k / int8_block), stride_(round_up(k, bf16_step)) {
        for (const Tensor& w : weights) {
            const Operand operand = of(w.type);
            (operand == Operand::int8 ? int8_ : operand == Operand::bf16 ? bf16_ : f32_) = true;
        }
        const auto after = [](int64_t at, int64_t size) { return round_up(at + size, cache_line); };
        // Kernels may read up to four blocks of a whole tile behind the last row.
        const int64_t n = int8_ ? rows * blocks_ + 4 * exec.kernels->matmul.int8_rows : 0;
        blocks_at_ = after(0, n * int8_block);
        halves_at_ = after(blocks_at_, n * int64_t{sizeof(Int8Block)});
        bf16_at_ = after(halves_at_, n * int64_t{sizeof(Int8Halves)});
        bytes_ = after(bf16_at_, bf16_ ? rows * stride_ * 2 : 0);
    }
    // Rows of one matrix are cut at multiples of this.
    static int64_t row_step(const KernelTable& kernels) {
        return std::max(kernels.matmul.bf16_rows, kernels.matmul.int8_rows);
    }
    bool f32() const { return f32_; }  // some weight reads them as they are
    bool prepared() const { return int8_ || bf16_; }
    bool only(Operand operand) const {
        return f32_ == (operand == Operand::f32) && int8_ == (operand == Operand::int8) &&
               bf16_ == (operand == Operand::bf16);
    }
    int64_t bytes() const { return bytes_; }
    void place(std::byte* memory) { memory_ = memory; }

    // Columns [c, c + n) of `row`, from x; c is a multiple of 32. Rows [first, end) are one matrix, which has
    // tiles of its own.
    void write(int64_t first, int64_t end, int64_t row, int64_t c, int64_t n, const float* x) const {
        const KernelTable& kernels = *exec_.kernels;
        if (bf16_) {
            const Tile t(first, end, row, kernels.matmul.bf16_rows);
            kernels.matmul.round(x, n, t.rows,
                                 bf16() + t.first * stride_ + c * t.rows + (row - t.first) * bf16_step);
        }
        if (int8_) {
            const Tile t(first, end, row, kernels.matmul.int8_rows);
            const Int8Places to = int8_row(t.first).from(c / int8_block * t.rows);
            kernels.pack.quantize(x, n, row - t.first, t.rows, to.q, to.blocks, to.halves);
        }
    }

    // The rows from `row` on, the first of a tile, for weights of b's type.
    void give(MatmulBlock& b, int64_t row) const {
        b.operand = of(b.type->type);
        b.xb_stride = stride_;
        if (bf16_) b.xb = bf16_row(row);
        if (int8_) b.xq = {int8_row(row).q, int8_row(row).blocks, int8_row(row).halves};
    }

    // A gated unit that writes these itself, from `row` on, the first of a tile, and from `column`; of what
    // is still to be filled in.
    GatedBlock gated(const GluParams& params, int64_t row, int64_t column) const {
        GatedBlock b;
        b.params = &params;
        b.glu = exec_.kernels->rows.glu;
        b.quantize = exec_.kernels->pack.quantize;
        if (bf16_) b.bf16 = bf16_row(row);
        if (int8_) b.int8 = int8_row(row);
        b.out_stride = stride_;
        b.column = column;
        return b;
    }

  private:
    struct Tile {  // of `step` rows, the one that `row` of rows [first, end) lies in
        int64_t first, rows;
        Tile(int64_t begin, int64_t end, int64_t row, int64_t step)
            : first(begin + (row - begin) / step * step), rows(std::min(step, end - first)) {}
    };

    Operand of(Type type) const {
        return exec_.kernels->matmul.operand(info(type), exec_.deterministic ? 1 : together_, k_);
    }
    uint16_t* bf16_row(int64_t row) const { return bf16() + row * stride_; }
    Int8Places int8_row(int64_t row) const {
        return Int8Places{codes(), blocks(), halves()}.from(row * blocks_);
    }
    int8_t* codes() const { return reinterpret_cast<int8_t*>(memory_); }
    Int8Block* blocks() const { return reinterpret_cast<Int8Block*>(memory_ + blocks_at_); }
    Int8Halves* halves() const { return reinterpret_cast<Int8Halves*>(memory_ + halves_at_); }
    uint16_t* bf16() const { return reinterpret_cast<uint16_t*>(memory_ + bf16_at_); }

    const Exec& exec_;
    bool f32_ = false, int8_ = false, bf16_ = false;
    int64_t together_, k_, blocks_, stride_;  // blocks: of a row
    int64_t blocks_at_, halves_at_, bf16_at_, bytes_;
    std::byte* memory_ = nullptr;
};

}  // namespace nibble::cpu
