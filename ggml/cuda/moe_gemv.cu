// Experts of one row to eight, each pair of row and expert a product of one row: decoding. A pair's blocks
// find their expert among the routes, so nothing is sorted or made ready before. The arithmetic is
// matmul_gemv.cu's.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ggml/base/checked.h"
#include "ggml/cuda/arrivals.h"
#include "ggml/cuda/moe_product.h"
#include "ggml/cuda/moe_sum.h"
#include "ggml/cuda/tile_codes.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"
#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/matmul_blocks.inl"
#include "ggml/cuda/matmul_gemv.inl"

struct PairArgs {
    RowBlockArgs product;  // by an expert's matrices
    View routes;
    MoeMatmulParams p;
    bool x_of_each;  // a row has columns of x for each of its experts
    SumArgs sum;     // of the results, unless it has no `out`
    int* counters;
};

// Block y: one of the experts that a row has chosen; z: the row. Rows that share an expert read it again,
// from the L2 cache.
template <uint32_t code>
__global__ void __launch_bounds__(row_block_threads, resident_blocks)
    pairs_kernel(const __grid_constant__ PairArgs a) {
    wait_for_previous();
    const int place = block_y(), row = block_z(), expert = expert_of(a.routes, a.p, row, place);
    const Segment& of_expert = a.product.segment[0];
    BlockGroup group(a.product);
    group.row = row, group.out_col = place * of_expert.rows;
    // Results of the block, from its slots: those of a row and expert.
    const auto each_result = [&](const auto& fn) {
        for (int i = thread_index(); i < 16 * a.product.slots; i += row_block_threads) {
            const RowBlockPlace at(a.product, group, i / 16);
            if (at.which >= 0) fn(at, i / 16, i % 16);
        }
    };
    if (expert >= 0) {
        group.before = expert * static_cast<int>(of_expert.blocks);
        group.x_col = a.x_of_each ? place * a.product.x.cols : 0;
        gemv_product<code>(a.product, group, [] {});
    } else {
        each_result([&](const RowBlockPlace& at, int slot, int r) {
            ResultEnd().store(a.product, at, slot, r, row, [](int) { return 0.0f; });
        });
    }
    // Blocks of all experts have the same results, of which the last adds them up.
    if (a.sum.out && arrived_last(a.counters + row * grid_x() + block_x(), a.p.n_used,
                                  reinterpret_cast<int*>(shared_memory())))
        each_result([&](const RowBlockPlace& at, int, int r) { sum_experts(a.sum, row, 16 * at.block + r); });
}

struct PairLaunch {
    PairArgs args;
    Type type;
    Dims dims;
};

// The launch for `n` weights of one type from number `first` on; false: there is no kernel for them.
bool plan_pairs(const Exec& e, const OpArgs& a, size_t first, size_t n, const UnitArgs& ends_in,
                PairLaunch& to) {
    const auto& p = a.params->as<MoeMatmulParams>();
    const Tensor &x = a.in[0], *const w = &a.in[2 + first];
    const int64_t rows = w->rows / p.n_experts, cols = w->cols;
    if (!e.gemv || x.rows == 0 || x.rows > most_few || w->layout != Layout::packed || rows % 16 != 0)
        return false;
    to.type = w->type;
    to.args = {{}, a.in[1], p, x.cols != cols, {}, e.counters};
    RowBlockArgs& product = to.args.product;
    product.x = x;
    product.x.cols = static_cast<int32_t>(cols);
    product.out = a.out[0];
    product.ends_in = ends_in;
    product.segments = static_cast<int32_t>(n);
    std::array<Type, 2> types{};
    for (size_t i = 0; i < n; ++i) {
        const auto first_col = static_cast<int32_t>(static_cast<int64_t>(first + i) * p.n_used * rows);
        product.segment[i] = {w[i].data, rows / 16, static_cast<int32_t>(rows), first_col,
                              a.in[2 + static_cast<size_t>(p.n_weights) + first + i]};
        types[i] = w[i].type;
    }
    const auto of = std::span<const Type>(types).first(n);
    if (!takes_units(product, of)) return false;
    const int64_t grid = plan_row_blocks(e, of, product, x.rows * p.n_used);
    if (grid == 0) return false;
    to.dims = {grid, p.n_used, static_cast<int32_t>(x.rows), row_block_threads, gemv_shared_bytes(product)};
    return to.dims.shared <= e.card->shared_per_block && x.rows * grid <= attention_counters;
}

void launch_pairs(const Exec& e, const PairLaunch& l) {
    visit_tile_format(
        l.type, [&]<TileFormat f>() { launch(pairs_kernel<format_code(f)>, l.dims, *e.stream, l.args); });
}

bool is_pair(const OpArgs& a, size_t i) {
    return i + 1 < static_cast<size_t>(a.params->as<MoeMatmulParams>().n_weights) &&
           a.in[2 + i].type == a.in[3 + i].type && a.in[2 + i].rows == a.in[3 + i].rows;
}

}  // namespace

bool multiply_pairs(const Exec& e, const OpArgs& a) {
    const auto n_weights = static_cast<size_t>(a.params->as<MoeMatmulParams>().n_weights);
    std::vector<PairLaunch> launches;
    for (size_t i = 0, n = 1; i < n_weights; i += n) {
        n = is_pair(a, i) ? 2 : 1;
        if (!plan_pairs(e, a, i, n, {false, {}, Tensor{}}, launches.emplace_back())) return false;
    }
    for (const PairLaunch& l : launches) launch_pairs(e, l);
    return true;
}

namespace {

// Gate and up, and their unit.
size_t run_gated_experts(const Exec& e, const OpArgs& m, std::span<const BoundInstr> behind) {
    if (!is_at(behind, 0, glu_op) || !is_pair(m, 0)) return 0;
    const OpArgs g = behind[0].args();
    const Tensor& hidden = m.out[0];
    if (g.in[1] || g.in[0].data != hidden.data || g.in[0].cols != hidden.cols || overlap(m.in[0], g.out[0]) ||
        overlap(m.in[1], g.out[0]))
        return 0;
    PairLaunch l;
    if (!plan_pairs(e, m, 0, 2, {true, g.params->as<GluParams>(), g.out[0]}, l)) return 0;
    launch_pairs(e, l);
    return 2;
}

// Down, and their sum.
size_t run_summed_experts(const Exec& e, const OpArgs& m, std::span<const BoundInstr> behind) {
    PairLaunch l;
    SumArgs sum;
    const size_t n = sum_at(behind, sum);
    if (n == 0 || behind[0].in[0].data != m.out[0].data || behind[0].in[1].data != m.in[1].data ||
        !plan_pairs(e, m, 0, 1, {false, {}, Tensor{}}, l))
        return 0;
    const std::span<const std::byte> out = memory_of(behind[n - 1].out[0]);
    if (overlap(m.in[0], out) || overlap(m.in[1], out)) return 0;
    l.args.sum = sum;
    launch_pairs(e, l);
    return 1 + n;
}

}  // namespace

size_t run_joined_experts(const Exec& e, std::span<const BoundInstr> instrs) {
    if (!is_at(instrs, 0, moe_matmul_op) || instrs[0].instr->read_until != 1) return 0;
    const OpArgs m = instrs[0].args();
    const int32_t n_weights = m.params->as<MoeMatmulParams>().n_weights;
    return n_weights == 2   ? run_gated_experts(e, m, instrs.subspan(1))
           : n_weights == 1 ? run_summed_experts(e, m, instrs.subspan(1))
                            : 0;
}

}  // namespace nibble::cuda
