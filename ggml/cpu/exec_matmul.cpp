// matmul: quantizes activations once when a weight wants int8, then cuts all weights' outputs into blocks.
// Blocks of every weight of the instruction go into one parallel region.
#include <algorithm>
#include <array>

#include "ggml/base/checked.h"
#include "ggml/cpu/exec.h"
#include "ggml/cpu/int8_layout.h"

namespace nibble::cpu {
namespace {

bool needs_int8(const Exec& exec, const OpArgs& a) {
    for (int32_t i = 0; i < a.params->as<MatmulParams>().n_weights; ++i)
        if (exec.kernels->int8_path(info(a.in[2 + static_cast<size_t>(i)].type))) return true;
    return false;
}

Int8Rows quantize_rows(const Exec& exec, const Tensor& x, std::byte* memory) {
    const Int8Layout layout = int8_layout(x.rows, x.cols);
    int8_t* q = reinterpret_cast<int8_t*>(memory);
    auto* const block_list = reinterpret_cast<Int8Block*>(memory + layout.blocks);
    auto* const halves = reinterpret_cast<Int8Halves*>(memory + layout.halves);
    // One long row is cut as well: blocks are independent.
    constexpr int64_t piece = 64 * int8_block;
    const int64_t pieces = ceil_div(x.cols, piece), blocks = x.cols / int8_block;
    const int64_t tile_rows = exec.kernels->tile_rows;
    exec.rows(x.rows * pieces, 4 * std::min(piece, x.cols), [&](int64_t first, int64_t last, int) {
        for (int64_t i = first; i < last; ++i) {
            const int64_t r = i / pieces, c = i % pieces * piece, tile = r / tile_rows * tile_rows;
            const int64_t h = std::min(tile_rows, x.rows - tile);  // rows of this tile
            const int64_t place = tile * blocks + c / int8_block * h + (r - tile);
            exec.kernels->quantize(x.row(r) + c, std::min(piece, x.cols - c), h, q + place * int8_block,
                                   block_list + place, halves + place);
        }
    });
    return {q, block_list, halves};
}

size_t worker_scratch(const Exec& exec, const OpArgs& a) {
    size_t bytes = 0;
    for (int32_t i = 0; i < a.params->as<MatmulParams>().n_weights; ++i) {
        const Tensor& w = a.in[2 + static_cast<size_t>(i)];
        bytes =
            std::max(bytes, exec.kernels->matmul_scratch(info(w.type), w.cols, w.layout == Layout::packed));
    }
    return round_up(bytes, static_cast<size_t>(cache_line));
}

// The cut of one instruction: columns of each weight in steps, rows in steps.
struct Cut {
    std::array<int64_t, max_matmul_weights + 1> first_task{};  // of each weight, in column steps
    int64_t columns = 0, rows = 0, row_blocks = 0;
};

Cut cut_work(const Exec& exec, const OpArgs& a, size_t n_weights) {
    const MatmulShape& shape = exec.kernels->matmul_shape;
    const int64_t m = a.in[0].rows, wanted = 8 * exec.pool->size();
    Cut cut;
    cut.columns = std::max(shape.column_step, a.out[0].cols / wanted / shape.column_step * shape.column_step);
    cut.rows = shape.max_rows;
    for (;; cut.rows /= 2) {
        cut.row_blocks = ceil_div(m, cut.rows);
        for (size_t i = 0; i < n_weights; ++i)
            cut.first_task[i + 1] = cut.first_task[i] + ceil_div(a.in[2 + i].rows, cut.columns);
        // Rows are cut further only while threads would idle: each block prepares its weights anew.
        if (cut.first_task[n_weights] * cut.row_blocks >= 4 * exec.pool->size() || cut.rows <= 48) return cut;
        if (exec.pool->size() == 1) return cut;
    }
}

}  // namespace

void run_matmul(const Exec& exec, const OpArgs& a, std::span<std::byte> scratch) {
    const auto n_weights = static_cast<size_t>(a.params->as<MatmulParams>().n_weights);
    const Tensor &x = a.in[0], &residual = a.in[1], &out = a.out[0];
    if (x.rows == 0) return;
    const Int8Rows xq = needs_int8(exec, a) ? quantize_rows(exec, x, scratch.data()) : Int8Rows{};
    std::byte* const workers = scratch.data() + (xq.q ? int8_layout(x.rows, x.cols).bytes : 0);
    const size_t per_worker = worker_scratch(exec, a);
    const Cut cut = cut_work(exec, a, n_weights);

    const auto run_block = [&](int64_t task, int worker) {
        const int64_t column_task = task / cut.row_blocks, r0 = task % cut.row_blocks * cut.rows;
        size_t i = 0;
        int64_t before = 0;  // columns of the weights that precede
        for (; column_task >= cut.first_task[i + 1]; ++i) before += a.in[2 + i].rows;
        const Tensor &w = a.in[2 + i], &bias = a.in[2 + n_weights + i];
        const int64_t n0 = (column_task - cut.first_task[i]) * cut.columns, column = before + n0;
        const int64_t blocks = x.cols / int8_block;
        MatmulBlock b;
        b.type = &info(w.type);
        b.w = w.row<std::byte>(n0);
        b.w_stride = w.stride;
        b.packed = w.layout == Layout::packed;
        b.lookahead = exec.lookahead;
        b.n = std::min(cut.columns, w.rows - n0);
        b.k = x.cols;
        b.m = std::min(cut.rows, x.rows - r0);
        b.x = x.row(r0);
        b.x_stride = x.stride / 4;
        if (xq.q) b.xq = {xq.q + r0 * x.cols, xq.blocks + r0 * blocks, xq.halves + r0 * blocks};
        b.bias = bias ? bias.row(0) + n0 : nullptr;
        b.residual = residual ? residual.row(r0) + column : nullptr;
        b.residual_stride = residual.stride / 4;
        b.out = out.row(r0) + column;
        b.out_stride = out.stride / 4;
        b.scratch = workers + static_cast<size_t>(worker) * per_worker;
        exec.kernels->matmul(b);
    };
    const int64_t tasks = cut.first_task[n_weights] * cut.row_blocks;
    constexpr int64_t worth = 1 << 16;  // multiply-adds below which waking a thread costs more than it saves
    if (x.rows * x.cols * out.cols < worth)
        for (int64_t t = 0; t < tasks; ++t) run_block(t, 0);
    else
        exec.streams(tasks, run_block);
}

size_t matmul_scratch(const Exec& exec, const OpArgs& a) {
    const Tensor& x = a.in[0];
    const int64_t quantized = needs_int8(exec, a) ? int8_layout(x.rows, x.cols).bytes : 0;
    return static_cast<size_t>(quantized) + static_cast<size_t>(exec.pool->size()) * worker_scratch(exec, a);
}

}  // namespace nibble::cpu
