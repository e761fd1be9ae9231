// moe_matmul: pairs of row and chosen expert, sorted by expert, go through the matmul kernels expert by
// expert, so that a batch reads each expert's weights once and a single row only those it uses.
#include <algorithm>
#include <cstring>

#include "ggml/cpu/exec.h"
#include "ggml/cpu/operands.h"

namespace nibble::cpu {
namespace {

constexpr int64_t most_columns = 512;  // of a block, so that its results stay in the cache

// Operands and the memory of one instruction; `max_pairs` is rows * n_used.
struct Work {
    const Exec& exec;
    const OpArgs& a;
    MoeMatmulParams p;
    int64_t k, n, max_pairs;
    Operands operands;
    // From the start of the scratch.
    int64_t first_at, pairs_at, tasks_at, operands_at, real_at, workers_at, kernel_bytes, per_worker, bytes;
    std::byte* scratch = nullptr;

    Work(const Exec& e, const OpArgs& args)
        : exec(e),
          a(args),
          p(args.params->as<MoeMatmulParams>()),
          k(weight(0).cols),
          n(weight(0).rows / p.n_experts),
          max_pairs(a.in[0].rows * p.n_used),
          operands(e, a.in.subspan(2, static_cast<size_t>(p.n_weights)), max_pairs, together(), k) {
        int64_t kernel = 0;
        for (int32_t i = 0; i < p.n_weights; ++i) {
            const Tensor& w = weight(i);
            kernel = std::max(kernel, static_cast<int64_t>(exec.kernels->matmul.scratch(
                                          info(w.type), w.cols, w.layout == Layout::packed)));
        }
        const auto after = [](int64_t at, int64_t size) { return round_up(at + size, cache_line); };
        first_at = 0;
        pairs_at = after(first_at, (int64_t{p.n_experts} + 1) * 8);
        tasks_at = after(pairs_at, max_pairs * 4);
        operands_at = after(tasks_at, (int64_t{p.n_experts} + 1) * 8);
        real_at = after(operands_at, operands.bytes());
        workers_at = after(real_at, operands.f32() ? max_pairs * k * 4 : 0);
        kernel_bytes = round_up(kernel, cache_line);
        per_worker = kernel_bytes + round_up(tile_floats() * 4, cache_line);
        bytes = workers_at + per_worker * exec.pool->size();
    }

    // Rows that an expert has; or all of them, where so many are better off with an operand of many rows.
    int64_t together() const {
        const int64_t rows = a.in[0].rows, each = max_pairs / p.n_experts;
        return rows > few_rows && each >= few_rows / 2 ? rows : each;
    }
    const Tensor& weight(int64_t i) const { return a.in[2 + static_cast<size_t>(i)]; }
    const Tensor& bias(int64_t i) const { return a.in[2 + static_cast<size_t>(p.n_weights + i)]; }
    int64_t column_limit() const { return std::max(exec.kernels->matmul.shape.column_step, most_columns); }
    int64_t row_limit() const { return std::min(exec.kernels->matmul.shape.max_rows, max_rows()); }
    int64_t max_rows() const {
        return round_up(std::max<int64_t>(a.in[0].rows, 1), Operands::row_step(*exec.kernels));
    }
    int64_t tile_floats() const { return row_limit() * column_limit(); }

    int64_t* first() const { return reinterpret_cast<int64_t*>(scratch + first_at); }  // pair, per expert
    int32_t* pairs() const { return reinterpret_cast<int32_t*>(scratch + pairs_at); }  // row * n_used + slot
    int64_t* tasks() const { return reinterpret_cast<int64_t*>(scratch + tasks_at); }  // first, per expert
    float* gathered() const { return reinterpret_cast<float*>(scratch + real_at); }

    // The expert of a pair, -1 when there is none of this number.
    int64_t expert(int64_t pair) const {
        if (!a.in[1]) return pair % p.n_used;
        const float e = a.in[1].row(pair / p.n_used)[pair % p.n_used];
        return e >= 0 && e < static_cast<float>(p.n_experts) ? static_cast<int64_t>(e) : -1;
    }
    const float* input(int64_t pair) const {
        const Tensor& x = a.in[0];
        return x.row(pair / p.n_used) + (x.cols == k ? 0 : pair % p.n_used * k);
    }
    float* output(int64_t pair, int64_t i) const {
        return a.out[0].row(pair / p.n_used) + (i * p.n_used + pair % p.n_used) * n;
    }
};

// Counting sort: within an expert the pairs keep their order. Returns how many there are.
int64_t sort_pairs(const Work& w) {
    int64_t* const first = w.first();
    std::fill_n(first, w.p.n_experts + 1, 0);
    for (int64_t i = 0; i < w.max_pairs; ++i) {
        const int64_t e = w.expert(i);
        if (e >= 0) ++first[e + 1];
        for (int64_t m = 0; e < 0 && m < w.p.n_weights; ++m) std::fill_n(w.output(i, m), w.n, 0.0f);
    }
    for (int64_t e = 0; e < w.p.n_experts; ++e) first[e + 1] += first[e];
    const int64_t n = first[w.p.n_experts];
    for (int64_t i = 0; i < w.max_pairs; ++i)
        if (const int64_t e = w.expert(i); e >= 0) w.pairs()[first[e]++] = static_cast<int32_t>(i);
    for (int64_t e = w.p.n_experts; e > 0; --e) first[e] = first[e - 1];
    first[0] = 0;
    return n;
}

// Brings the inputs into the order of the pairs, as the kernels want them: an expert's rows are a matrix.
void prepare(const Work& w, int64_t n_pairs) {
    w.exec.rows(n_pairs, 4 * w.k, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
            const float* const x = w.input(w.pairs()[i]);
            if (w.operands.f32()) std::memcpy(w.gathered() + i * w.k, x, static_cast<size_t>(w.k) * 4);
            const int64_t e = w.expert(w.pairs()[i]);
            w.operands.write(w.first()[e], w.first()[e + 1], i, 0, w.k, x);
        }
    });
}

// One block of one expert: `rows` pairs from `pair`, `columns` outputs from n0 of weight i.
struct Block {
    int64_t i, expert, pair, rows, n0, columns;
};

// Parts of a worker's memory: the kernel's, and that of a block's results.
std::byte* kernel_memory(const Work& w, int worker) {
    return w.scratch + w.workers_at + worker * w.per_worker;
}
float* tile_of(const Work& w, int worker) {
    return reinterpret_cast<float*>(kernel_memory(w, worker) + w.kernel_bytes);
}

// A block's product, but for where its results go.
MatmulBlock product_of(const Work& w, const Block& k, int worker) {
    const Tensor &weight = w.weight(k.i), &bias = w.bias(k.i);
    MatmulBlock b;
    b.type = &info(weight.type);
    b.w = weight.row<std::byte>(k.expert * w.n + k.n0);
    b.w_stride = weight.stride;
    b.packed = weight.layout == Layout::packed;
    b.streaming = w.exec.streaming;
    b.n = k.columns;
    b.k = w.k;
    b.m = k.rows;
    if (w.operands.f32()) b.x = w.gathered() + k.pair * w.k;
    b.x_stride = w.k;
    w.operands.give(b, k.pair);
    b.bias = bias ? bias.row(0) + k.expert * w.n + k.n0 : nullptr;
    b.scratch = kernel_memory(w, worker);
    return b;
}

// Calls fn(block, worker) for blocks of at most so many columns, whole steps of them, for all pairs and
// n_weights weights, from all threads.
template <class Fn>
void each_block(const Work& w, int64_t n_pairs, int64_t n_weights, int64_t step, int64_t most, const Fn& fn) {
    // Columns in as large pieces as leave every thread some; an expert's rows in pieces of the kernel's.
    const int64_t threads = w.exec.pool->size(), rows = w.row_limit();
    const int64_t active = std::min<int64_t>(n_pairs, w.p.n_experts);
    const int64_t wanted = active * w.n * n_weights / (8 * threads) / step * step;
    const int64_t columns = std::clamp(wanted, step, most / step * step);
    const int64_t column_blocks = ceil_div(w.n, columns);
    int64_t* const tasks = w.tasks();
    tasks[0] = 0;
    for (int64_t e = 0; e < w.p.n_experts; ++e)
        tasks[e + 1] = tasks[e] + ceil_div(w.first()[e + 1] - w.first()[e], rows) * column_blocks;
    const int64_t per_weight = tasks[w.p.n_experts], total = per_weight * n_weights;
    const auto run_piece = [&](int64_t first, int64_t last, int worker) {
        for (int64_t task = first; task < last; ++task) {
            const int64_t i = task / per_weight, t = task % per_weight;
            const int64_t e = std::upper_bound(tasks, tasks + w.p.n_experts + 1, t) - tasks - 1;
            const int64_t row_blocks = (tasks[e + 1] - tasks[e]) / column_blocks, local = t - tasks[e];
            const int64_t pair = w.first()[e] + local % row_blocks * rows, n0 = local / row_blocks * columns;
            const int64_t left = w.first()[e + 1] - pair;
            fn(Block{i, e, pair, std::min(rows, left), n0, std::min(columns, w.n - n0)}, worker);
        }
    };
    constexpr int64_t worth = 1 << 16;  // as for matmul
    if (n_pairs * w.k * w.n * w.p.n_weights < worth)
        run_piece(0, total, 0);
    else
        w.exec.pool->run_stretches(total, run_piece);
}

// With operands in place.
void multiply(const Work& w, int64_t n_pairs) {
    const int64_t step = w.exec.kernels->matmul.shape.column_step;
    each_block(w, n_pairs, w.p.n_weights, step, w.column_limit(), [&](const Block& k, int worker) {
        MatmulBlock b = product_of(w, k, worker);
        b.out = tile_of(w, worker);
        b.out_stride = w.column_limit();
        w.exec.kernels->matmul.block(b);
        for (int64_t r = 0; r < k.rows; ++r)
            std::memcpy(w.output(w.pairs()[k.pair + r], k.i) + k.n0, b.out + r * b.out_stride,
                        static_cast<size_t>(k.columns) * 4);
    });
}

// A gate and what it gates, as the operands of the product behind them.
class GatedExperts {
  public:
    GatedExperts(const Work& gate_up, const OpArgs& glu, const Work& product)
        : w_(gate_up), next_(product.operands), params_(glu.params->as<GluParams>()) {
        const Tensor &gate = w_.weight(0), &up = w_.weight(1);
        const Operand operand = w_.exec.kernels->matmul.gated_operand;
        by_kernel_ = gate.type == up.type && gate.layout == Layout::packed && up.layout == Layout::packed &&
                     w_.operands.only(operand) && next_.only(operand);
    }

    void multiply(int64_t n_pairs) const {
        const int64_t steps = round_up(w_.exec.kernels->matmul.shape.column_step, int8_block);
        // A row may have an expert twice.
        int64_t rows = 1;
        for (int64_t e = 0; e < w_.p.n_experts; ++e) rows = std::max(rows, w_.first()[e + 1] - w_.first()[e]);
        const int64_t most = w_.tile_floats() / std::min(rows, w_.row_limit()) / 2;
        each_block(w_, n_pairs, 1, steps, most, [&](const Block& k, int worker) {
            k.rows > few_rows&& by_kernel_ ? at_once(k, worker) : one_by_one(k, worker);
        });
    }

  private:
    void at_once(const Block& k, int worker) const {
        GatedBlock b = next_.gated(params_, k.pair, k.n0);
        b.gate = product_of(w_, k, worker);
        const MatmulBlock up = product_of(w_, beside(k), worker);
        b.up = up.w;
        b.up_bias = up.bias;
        w_.exec.kernels->matmul.gated(b);
    }
    void one_by_one(const Block& k, int worker) const {
        float* const tile = tile_of(w_, worker);
        const int64_t stride = 2 * k.columns;
        for (const Block& part : {k, beside(k)}) {
            MatmulBlock b = product_of(w_, part, worker);
            b.out = tile + part.i * k.columns;
            b.out_stride = stride;
            w_.exec.kernels->matmul.block(b);
        }
        for (int64_t r = 0; r < k.rows; ++r) {
            float* const gate = tile + r * stride;
            w_.exec.kernels->rows.glu(params_, gate, gate + k.columns, gate, k.columns);
            next_.write(w_.first()[k.expert], w_.first()[k.expert + 1], k.pair + r, k.n0, k.columns, gate);
        }
    }
    static Block beside(Block k) {
        k.i = 1;
        return k;
    }

    const Work& w_;
    const Operands& next_;
    const GluParams& params_;
    bool by_kernel_;
};

}  // namespace

void run_moe_matmul(const Exec& exec, const OpArgs& a, std::span<std::byte> scratch) {
    Work w(exec, a);
    w.scratch = scratch.data();
    w.operands.place(w.scratch + w.operands_at);
    if (w.max_pairs == 0) return;
    const int64_t n_pairs = sort_pairs(w);
    prepare(w, n_pairs);
    multiply(w, n_pairs);
}

bool run_gated_experts(const Exec& exec, const OpArgs& gate_up, std::span<std::byte> gate_up_scratch,
                       const OpArgs& glu, const OpArgs& product, std::span<std::byte> scratch) {
    Work w(exec, gate_up), next(exec, product);
    const Tensor &both = gate_up.out[0], &routes = gate_up.in[1];
    if (w.p.n_weights != 2 || next.p.n_weights != 1 || next.k != w.n || w.n % int8_block != 0 ||
        glu.out[0].cols != w.p.n_used * w.n || routes.data != product.in[1].data ||
        w.p.n_used != next.p.n_used || w.p.n_experts != next.p.n_experts || next.operands.f32() ||
        next.operands.bytes() > both.rows * both.stride)
        return false;
    if (w.max_pairs == 0) return true;
    w.scratch = gate_up_scratch.data();
    w.operands.place(w.scratch + w.operands_at);
    // In the place of what gate and up would be: the scratch of the product may be that of x.
    next.operands.place(both.data);
    const int64_t n_pairs = sort_pairs(w);
    prepare(w, n_pairs);
    GatedExperts(w, glu, next).multiply(n_pairs);
    next.scratch = scratch.data();
    sort_pairs(next);
    multiply(next, n_pairs);
    return true;
}

size_t moe_matmul_scratch(const Exec& exec, const OpArgs& a) {
    return static_cast<size_t>(Work(exec, a).bytes);
}

}  // namespace nibble::cpu
