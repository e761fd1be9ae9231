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

// How products of the same rows are cut: each weight's columns into units, rows into blocks of `rows`.
// Units lie in shares, in each the units of one weight behind those of another; so a worker's share is of
// every weight what it packed (ThreadPool::shares()).
struct Cut {
    std::array<int64_t, max_matmul_weights> units{};  // of each weight
    size_t n_weights = 0;
    int64_t all_units = 0, shares = 1;
    int64_t columns = 0, rows = 0, row_blocks = 0;  // columns: of a unit

    int64_t first_of(size_t weight, int64_t share) const { return units[weight] * share / shares; }
    int64_t first_of_all(int64_t share) const {
        int64_t sum = 0;
        for (size_t i = 0; i < n_weights; ++i) sum += first_of(i, share);
        return sum;
    }
    // Units [first, last) of a weight, which follow each other.
    struct Run {
        size_t weight;
        int64_t first, last;
    };
    // From the unit at a place to the end of its weight's units in the share.
    Run at(int64_t place) const {
        int64_t share = place * shares / all_units;
        while (first_of_all(share) > place) --share;
        while (first_of_all(share + 1) <= place) ++share;
        place -= first_of_all(share);
        size_t i = 0;
        for (; place >= first_of(i, share + 1) - first_of(i, share); ++i)
            place -= first_of(i, share + 1) - first_of(i, share);
        return {i, first_of(i, share) + place, first_of(i, share + 1)};
    }
};

// Into units of whole column_steps.
Cut cut_work(const Exec& exec, std::span<const Tensor> weights, int64_t m, int64_t column_step) {
    const int64_t wanted = 8 * exec.pool->size();
    int64_t all_columns = 0;
    for (const Tensor& w : weights) all_columns += w.rows;
    Cut cut;
    cut.n_weights = weights.size();
    cut.shares = exec.pool->shares();
    // Few rows take whole runs of units, so that units may be as small as weights are packed.
    cut.columns = m <= few_rows ? int64_t{exec.kernels->pack.lanes}
                                : std::max(column_step, all_columns / wanted / column_step * column_step);
    cut.rows = exec.kernels->matmul.shape.max_rows;
    for (;; cut.rows /= 2) {
        cut.row_blocks = ceil_div(m, cut.rows);
        cut.all_units = 0;
        for (size_t i = 0; i < weights.size(); ++i)
            cut.all_units += cut.units[i] = ceil_div(weights[i].rows, cut.columns);
        // Rows are cut further only while threads would idle: each block prepares its weights anew.
        if (cut.all_units * cut.row_blocks >= 4 * exec.pool->size() || cut.rows <= 48) return cut;
        if (exec.pool->size() == 1) return cut;
    }
}

// What each worker begins the next product with: it comes while the worker waits for the others, and for what
// the caller does alone in between.
class NextProduct {
  public:
    NextProduct(const Exec& exec, int64_t rows) : exec_(exec) {
        if (rows <= few_rows && !exec.next_weights.empty())
            cut_ = cut_work(exec, exec.next_weights, rows, exec.kernels->matmul.shape.column_step);
    }
    void ask(int worker) const {
        if (cut_.all_units == 0) return;
        const int64_t size = exec_.pool->size();
        const int64_t begin = cut_.all_units * worker / size, end = cut_.all_units * (worker + 1) / size;
        if (begin == end) return;
        const Cut::Run run = cut_.at(begin);
        const Tensor& w = exec_.next_weights[run.weight];
        const int64_t units = std::min(run.last - run.first, end - begin);
        exec_.pool->ask_while_idle(worker,
                                   {w.row<const std::byte>(run.first * cut_.columns),
                                    static_cast<size_t>(std::min(most, units * cut_.columns * w.stride))});
    }

  private:
    static constexpr int64_t most = 128 * 1024;  // more than waits are long, less than the second-level cache
    const Exec& exec_;
    Cut cut_;
};

// Calls fn(i, r0, first, last, worker), rows from r0 on and units [first, last) of weight i, for all of
// them; alone if they are fewer multiply-adds than waking a thread costs.
template <class Fn>
void each_block(const Exec& exec, const Cut& cut, int64_t rows, int64_t multiply_adds, const Fn& fn) {
    const int64_t blocks = cut.all_units * cut.row_blocks;
    const NextProduct next(exec, rows);
    // A piece of all blocks, unit after unit and of each the blocks of rows; where rows are one block, of
    // each weight at once.
    const auto run_piece = [&](int64_t first, int64_t last, int worker) {
        if (first == blocks * worker / exec.pool->size()) next.ask(worker);
        while (first < last) {
            const Cut::Run run = cut.at(first / cut.row_blocks);
            const int64_t n = cut.row_blocks > 1 ? 1 : std::min(last - first, run.last - run.first);
            fn(run.weight, first % cut.row_blocks * cut.rows, run.first, run.first + n, worker);
            first += n;
        }
    };
    constexpr int64_t worth = 1 << 16;
    if (multiply_adds < worth)
        run_piece(0, blocks, 0);
    else
        exec.pool->run_stretches(blocks, run_piece);
}

// Columns [n0, n0 + n) of w, times rows from r0 on of those in place.
MatmulBlock block_of(const Exec& exec, const Operands& operands, const Tensor& x, const Tensor& w, int64_t n0,
                     int64_t n, int64_t r0, int64_t rows) {
    MatmulBlock b;
    b.type = &info(w.type);
    b.w = w.row<std::byte>(n0);
    b.w_stride = w.stride;
    b.packed = w.layout == Layout::packed;
    b.streaming = exec.streaming;
    b.n = std::min(n, w.rows - n0);
    b.k = x.cols;
    b.m = std::min(rows, x.rows - r0);
    b.x = x.row(r0);
    b.x_stride = x.stride / 4;
    operands.give(b, r0);
    return b;
}

// With operands in place.
void multiply(const Exec& exec, const OpArgs& a, const Operands& operands, std::byte* workers) {
    const auto n_weights = static_cast<size_t>(a.params->as<MatmulParams>().n_weights);
    const Tensor &x = a.in[0], &residual = a.in[1], &out = a.out[0];
    const size_t per_worker = worker_scratch(exec, a);
    const Cut cut =
        cut_work(exec, a.in.subspan(2, n_weights), x.rows, exec.kernels->matmul.shape.column_step);
    std::array<int64_t, max_matmul_weights> before{};  // columns of the weights that precede
    for (size_t i = 1; i < n_weights; ++i) before[i] = before[i - 1] + a.in[1 + i].rows;

    each_block(exec, cut, x.rows, x.rows * x.cols * out.cols,
               [&](size_t i, int64_t r0, int64_t first, int64_t last, int worker) {
                   const Tensor& bias = a.in[2 + n_weights + i];
                   const int64_t n0 = first * cut.columns, column = before[i] + n0;
                   MatmulBlock b = block_of(exec, operands, x, a.in[2 + i], n0, (last - first) * cut.columns,
                                            r0, cut.rows);
                   b.bias = bias ? bias.row(0) + n0 : nullptr;
                   b.residual = residual ? residual.row(r0) + column : nullptr;
                   b.residual_stride = residual.stride / 4;
                   b.out = out.row(r0) + column;
                   b.out_stride = out.stride / 4;
                   b.past_cache = out.rows * out.stride > exec.kept_result;
                   b.scratch = workers + static_cast<size_t>(worker) * per_worker;
                   exec.kernels->matmul.block(b);
               });
}

// A gate and what it gates, in a product's outputs: one weight each, or one for both.
struct GatedWeights {
    Tensor gate, up;
    const float *gate_bias, *up_bias;

    explicit GatedWeights(const OpArgs& a) {
        const auto n = static_cast<size_t>(a.params->as<MatmulParams>().n_weights);
        const int64_t cols = a.out[0].cols / 2;
        const Tensor &first = a.in[2], &last = a.in[1 + n], &bias = a.in[2 + n], &last_bias = a.in[1 + 2 * n];
        gate = first, up = last;
        gate_bias = bias ? bias.row(0) : nullptr, up_bias = last_bias ? last_bias.row(0) : nullptr;
        if (n == 1) {
            gate.rows = up.rows = cols;
            up.data += cols * up.stride;
            if (bias) up_bias += cols;
        }
    }
};

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

bool run_gated_product(const Exec& exec, const OpArgs& gate_up, std::span<std::byte> gate_up_scratch,
                       const OpArgs& glu, const OpArgs& product, std::span<std::byte> scratch) {
    const auto n_weights = gate_up.params->as<MatmulParams>().n_weights;
    const Tensor& x = gate_up.in[0];
    const int64_t cols = glu.out[0].cols;
    if (x.rows <= few_rows || gate_up.in[1] || n_weights > 2) return false;
    if (cols % bf16_step != 0 || gate_up.out[0].stride != gate_up.out[0].cols * 4) return false;
    const GatedWeights weights(gate_up);
    const Tensor &gate = weights.gate, &up = weights.up;
    if (gate.type != up.type || gate.rows != cols || up.rows != cols || gate.layout != Layout::packed ||
        up.layout != Layout::packed)
        return false;
    Operands operands = operands_of(exec, gate_up), next = operands_of(exec, product);
    const Operand operand = exec.kernels->matmul.gated_operand;
    if (!operands.only(operand) || !next.only(operand)) return false;
    operands.place(gate_up_scratch.data());
    // What gate and up would be is not written, and takes more room.
    next.place(gate_up.out[0].data);
    prepare(exec, x, operands);
    std::byte* const workers = gate_up_scratch.data() + operands.bytes();
    const size_t per_worker = worker_scratch(exec, gate_up);
    const int64_t step = round_up(2 * exec.kernels->matmul.shape.column_step, bf16_step);
    const Cut cut = cut_work(exec, {&gate, 1}, x.rows, step);
    each_block(exec, cut, x.rows, x.rows * x.cols * 2 * gate.rows,
               [&](size_t, int64_t r0, int64_t first, int64_t last, int worker) {
                   const int64_t n0 = first * cut.columns;
                   GatedBlock b = next.gated(glu.params->as<GluParams>(), r0, n0);
                   b.gate = block_of(exec, operands, x, gate, n0, (last - first) * cut.columns, r0, cut.rows);
                   b.gate.bias = weights.gate_bias ? weights.gate_bias + n0 : nullptr;
                   b.gate.scratch = workers + static_cast<size_t>(worker) * per_worker;
                   b.up = up.row<std::byte>(n0);
                   b.up_bias = weights.up_bias ? weights.up_bias + n0 : nullptr;
                   exec.kernels->matmul.gated(b);
               });
    multiply(exec, product, next, scratch.data());
    return true;
}

size_t matmul_scratch(const Exec& exec, const OpArgs& a) {
    return static_cast<size_t>(operands_of(exec, a).bytes()) +
           static_cast<size_t>(exec.pool->size()) * worker_scratch(exec, a);
}

}  // namespace nibble::cpu
