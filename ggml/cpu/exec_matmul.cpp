// matmul: turns activations once into what the weights are multiplied by, then cuts all outputs into blocks.
// Blocks of every weight of the instruction go into one parallel region, neighbours to one thread.
#include <algorithm>
#include <array>

#include "ggml/base/checked.h"
#include "ggml/cpu/exec.h"
#include "ggml/cpu/glu_rows.h"
#include "ggml/cpu/operands.h"

namespace nibble::cpu {
namespace {

Operands operands_of(const Exec& exec, const OpArgs& a) {
    const auto n_weights = static_cast<size_t>(a.params->as<MatmulParams>().n_weights);
    return {exec, a.in.subspan(2, n_weights), a.in[0].rows, a.in[0].rows, a.in[0].cols};
}

void prepare(const Exec& exec, const Tensor& x, const Operands& operands) {
    // One long row is cut as well: blocks are independent.
    exec.pieces(x.rows, x.cols, 64 * int8_block, 4,
                [&](int64_t r, int64_t c, int64_t n) { operands.write(0, x.rows, r, c, n, x.row(r) + c); });
}

size_t worker_scratch(const Exec& exec, const OpArgs& a) {
    size_t bytes = 0;
    for (int32_t i = 0; i < a.params->as<MatmulParams>().n_weights; ++i) {
        const Tensor& w = a.in[2 + static_cast<size_t>(i)];
        bytes =
            std::max(bytes, exec.kernels->matmul.scratch(info(w.type), w.cols, w.layout == Layout::packed));
    }
    return round_up(bytes, static_cast<size_t>(cache_line));
}

// How one instruction is cut: each weight's columns into units, rows into blocks of `rows`.
struct Cut {
    std::array<int64_t, max_matmul_weights + 1> first_unit{};  // of each weight
    int64_t columns = 0, rows = 0, row_blocks = 0;             // columns: of a unit
};

Cut cut_work(const Exec& exec, const OpArgs& a, size_t n_weights) {
    const MatmulShape& shape = exec.kernels->matmul.shape;
    const int64_t m = a.in[0].rows, wanted = 8 * exec.pool->size();
    Cut cut;
    // Few rows take whole runs of units, so that units may be as small as weights are packed.
    cut.columns = m <= few_rows ? int64_t{exec.kernels->pack.lanes}
                                : std::max(shape.column_step,
                                           a.out[0].cols / wanted / shape.column_step * shape.column_step);
    cut.rows = shape.max_rows;
    for (;; cut.rows /= 2) {
        cut.row_blocks = ceil_div(m, cut.rows);
        for (size_t i = 0; i < n_weights; ++i)
            cut.first_unit[i + 1] = cut.first_unit[i] + ceil_div(a.in[2 + i].rows, cut.columns);
        // Rows are cut further only while threads would idle: each block prepares its weights anew.
        if (cut.first_unit[n_weights] * cut.row_blocks >= 4 * exec.pool->size() || cut.rows <= 48) return cut;
        if (exec.pool->size() == 1) return cut;
    }
}

// With operands in place.
void multiply(const Exec& exec, const OpArgs& a, const Operands& operands, std::byte* workers) {
    const auto n_weights = static_cast<size_t>(a.params->as<MatmulParams>().n_weights);
    const Tensor &x = a.in[0], &residual = a.in[1], &out = a.out[0];
    const size_t per_worker = worker_scratch(exec, a);
    const Cut cut = cut_work(exec, a, n_weights);
    std::array<int64_t, max_matmul_weights> before{};  // columns of the weights that precede
    for (size_t i = 1; i < n_weights; ++i) before[i] = before[i - 1] + a.in[1 + i].rows;

    // Rows from r0 on, units [first, last) of weight i.
    const auto run_block = [&](size_t i, int64_t r0, int64_t first, int64_t last, int worker) {
        const Tensor &w = a.in[2 + i], &bias = a.in[2 + n_weights + i];
        const int64_t n0 = (first - cut.first_unit[i]) * cut.columns, column = before[i] + n0;
        MatmulBlock b;
        b.type = &info(w.type);
        b.w = w.row<std::byte>(n0);
        b.w_stride = w.stride;
        b.packed = w.layout == Layout::packed;
        b.lookahead = exec.lookahead;
        b.n = std::min((last - first) * cut.columns, w.rows - n0);
        b.k = x.cols;
        b.m = std::min(cut.rows, x.rows - r0);
        b.x = x.row(r0);
        b.x_stride = x.stride / 4;
        operands.give(b, r0);
        b.bias = bias ? bias.row(0) + n0 : nullptr;
        b.residual = residual ? residual.row(r0) + column : nullptr;
        b.residual_stride = residual.stride / 4;
        b.out = out.row(r0) + column;
        b.out_stride = out.stride / 4;
        b.past_cache = out.rows * out.stride > exec.kept_result;
        b.scratch = workers + static_cast<size_t>(worker) * per_worker;
        exec.kernels->matmul.block(b);
    };
    // A piece of all blocks, unit after unit and of each the blocks of rows; where rows are one block, of
    // each weight at once.
    const auto run_piece = [&](int64_t first, int64_t last, int worker) {
        for (size_t i = 0; first < last;) {
            const int64_t unit = first / cut.row_blocks, r0 = first % cut.row_blocks * cut.rows;
            while (unit >= cut.first_unit[i + 1]) ++i;
            const int64_t end = cut.row_blocks > 1 ? unit + 1 : std::min(last, cut.first_unit[i + 1]);
            run_block(i, r0, unit, end, worker);
            first += end - unit;
        }
    };
    const int64_t blocks = cut.first_unit[n_weights] * cut.row_blocks;
    constexpr int64_t worth = 1 << 16;  // multiply-adds below which waking a thread costs more than it saves
    if (x.rows * x.cols * out.cols < worth)
        run_piece(0, blocks, 0);
    else
        exec.pool->run_stretches(blocks, run_piece);
}

}  // namespace

void run_matmul(const Exec& exec, const OpArgs& a, std::span<std::byte> scratch) {
    if (a.in[0].rows == 0) return;
    Operands operands = operands_of(exec, a);
    operands.place(scratch.data());
    if (operands.prepared()) prepare(exec, a.in[0], operands);
    multiply(exec, a, operands, scratch.data() + operands.bytes());
}

void run_glu_matmul(const Exec& exec, const OpArgs& glu, const OpArgs& a, std::span<std::byte> scratch) {
    const int64_t rows = a.in[0].rows;
    if (rows == 0) return;
    Operands operands = operands_of(exec, a);
    if (operands.f32()) {
        run_glu(exec, glu, {});
        return run_matmul(exec, a, scratch);
    }
    operands.place(scratch.data());
    const GluRows x(exec, glu);
    x.each_piece(exec, [&](int64_t r, int64_t c, int64_t n) {
        static_assert(GluRows::piece % int8_block == 0 && GluRows::piece % bf16_step == 0);
        std::array<float, GluRows::piece> values;
        x.write(r, c, n, values.data());
        operands.write(0, rows, r, c, n, values.data());
    });
    multiply(exec, a, operands, scratch.data() + operands.bytes());
}

size_t matmul_scratch(const Exec& exec, const OpArgs& a) {
    return static_cast<size_t>(operands_of(exec, a).bytes()) +
           static_cast<size_t>(exec.pool->size()) * worker_scratch(exec, a);
}

}  // namespace nibble::cpu
