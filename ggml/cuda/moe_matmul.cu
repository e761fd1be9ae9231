// moe_matmul: each row times the matrices of its experts. Pairs (row, chosen expert) are sorted by expert on
// the device; a block then multiplies 16 rows of an expert's matrix by all its pairs, without padding.
#include <algorithm>

#include "ggml/base/checked.h"
#include "ggml/cuda/moe_product.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/moe_inputs.inl"

struct MoeArgs : MoeProduct {
    Activations<8> prepared;
};

// Calls fn(pair, expert) for pairs `from` .. `to`, 32 at a time, by a whole warp; behind the last the expert
// is -1. Some routes are asked for at once, and a pair's row and place come from those of the one 32 before:
// a division would take longer than the rest.
template <class Fn>
__device__ void for_pairs(const View& routes, const MoeMatmulParams& p, int from, int to, const Fn& fn) {
    constexpr int at_once = 8;
    const int last_row = static_cast<int>(routes.rows) - 1;
    const int rows = 32 / p.n_used, places = 32 % p.n_used;
    int row = (from + lane()) / p.n_used, place = (from + lane()) % p.n_used;
    for (int first = from; first < to; first += 32 * at_once) {
        int expert[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            expert[i] = expert_of(routes, p, row < last_row ? row : last_row, place);
            row += rows;
            place += places;
            if (place >= p.n_used) {
                ++row;
                place -= p.n_used;
            }
        }
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            if (first + 32 * i >= to) break;
            const int pair = first + 32 * i + lane();
            fn(pair, pair < to ? expert[i] : -1);
        }
    }
}

// What experts that do not exist give, for 32 pairs from `first` on: zeros. Called by a whole warp.
__device__ inline void zero_missing(const View& routes, const View& out, const MoeMatmulParams& p,
                                    int first) {
    const auto n = static_cast<int>(routes.rows * p.n_used);
    const int pair = first + lane() < n ? first + lane() : n - 1;
    const int row = pair / p.n_used, place = pair % p.n_used;
    const int expert = expert_of(routes, p, row, place), cols = out.cols / (p.n_weights * p.n_used);
    for (int l = 0; l < 32; ++l) {
        if (shuffle(expert, l) >= 0) continue;
        float* const results = out.row(shuffle(row, l)) + int64_t{shuffle(place, l)} * cols;
        for (int w = 0; w < p.n_weights; ++w)
            for (int c = lane(); c < cols; c += 32) results[int64_t{w} * p.n_used * cols + c] = 0;
    }
}

// The first block sorts by counting: each warp has a run of the pairs and, in shared memory, a number per
// expert: of its pairs there, then where the next of them goes. The others look after pairs without an
// expert, whose results nobody writes otherwise.
__global__ void __launch_bounds__(1024) group_kernel(View routes, View out, MoeMatmulParams p, Pairs pairs) {
    wait_for_previous();
    const int warps = block_threads() / 32;
    const auto n = static_cast<int>(routes.rows * p.n_used);
    if (block_x() > 0) {
        const int64_t first = ((block_x() - 1) * warps + warp_index()) * 32;
        if (first < n) zero_missing(routes, out, p, static_cast<int>(first));
        return;
    }
    auto* const counts = reinterpret_cast<int*>(shared_memory());  // of the experts, warp after warp
    int* const begin = counts + warps * p.n_experts;               // of the experts in the list
    int* const partial = begin + p.n_experts;                      // of block_sum_up_to()
    int* const at = counts + warp_index() * p.n_experts;
    const int each = (n + warps - 1) / warps, from = warp_index() * each;
    const int to = from + each < n ? from + each : n;
    for (int i = thread_index(); i < p.n_experts * warps; i += block_threads()) counts[i] = 0;
    sync_block();
    for_pairs(routes, p, from, to, [&](int, int e) {
        if (e >= 0) atomic_add(at + e, 1);
    });
    sync_block();
    int placed = 0, active = 0;  // pairs and experts so far
    for (int base = 0; base < p.n_experts; base += block_threads()) {
        const int e = base + thread_index();
        int total = 0;
        for (int w = 0; w < warps && e < p.n_experts; ++w) {
            int& count = counts[w * p.n_experts + e];
            const int before = total;
            total += count;
            count = before;
        }
        int all_pairs, all_experts;
        const int end = placed + block_sum_up_to(total, all_pairs, partial);
        const int rank = active + block_sum_up_to(total > 0 ? 1 : 0, all_experts, partial);
        if (e < p.n_experts) {
            begin[e] = pairs.first[e] = end - total;
            if (total > 0) pairs.active[rank - 1] = e;
        }
        placed += all_pairs;
        active += all_experts;
    }
    if (thread_index() == 0) {
        pairs.first[p.n_experts] = placed;
        *pairs.count = active;
    }
    sync_block();
    for_pairs(routes, p, from, to, [&](int pair, int e) {
        int before;
        const int alike = lanes_alike(e, before);
        const int next = e >= 0 ? begin[e] + at[e] : 0;
        if (e >= 0) pairs.list[next + before] = pair;
        sync_warp();
        if (e >= 0 && before == alike - 1) at[e] += alike;
        sync_warp();
    });
}

__device__ inline void store(const MoeArgs& a, int weight, int expert, int64_t row, int pair, float sum) {
    if (a.bias[weight]) sum += a.bias[weight].row(0)[int64_t{expert} * a.rows + row];
    a.results(weight, pair)[row] = sum;
}

// Block x: 16 rows; y: an expert that has pairs; z: the weight.
template <uint32_t code, int n>
__global__ void __launch_bounds__(256, resident_blocks) moe_kernel(MoeArgs a) {
    constexpr TileFormat f = format_of(code);
    using Product = BlockProduct<f, n>;
    uint32_t table = 0;
    auto* const sums = reinterpret_cast<float*>(shared_memory() + table_bytes(f));
    wait_for_previous();
    if (block_y() >= *a.pairs.count) return;
    const int expert = a.pairs.active[block_y()], weight = a.first_weight + block_z();
    const int from = a.pairs.first[expert], to = a.pairs.first[expert + 1];
    const int64_t blocks_per_expert = a.rows / 16;
    const std::byte* const block =
        a.weight[weight] + (expert * blocks_per_expert + block_x()) * f.block_bytes(a.cols);
    if constexpr (f.table) {
        table = fill_table(a.table);
        sync_block();
    }
    const auto input = [&](int i) {  // column of the prepared activations of the i-th pair
        return a.input(a.pairs.list[i < to ? i : to - 1]);
    };
    const auto columns_from = [&](int first) {
        return WarpColumns<n>(a.prepared, [&](int c) { return input(first + c); });
    };
    // Before the product, which keeps tiles in registers from here on.
    WarpColumns<n> columns = columns_from(from);
    Product product(block, a.cols);
    for (int first = from; first < to; first += 8 * n) {
        const bool more = first + 8 * n < to;
        product.run(table, columns, sums, more ? block : nullptr);
        if (more) columns = columns_from(first + 8 * n);
        for (int i = thread_index(); i < 16 * 8 * n; i += block_threads()) {
            if (first + i / 16 >= to) continue;
            const float sum = Product::result(sums, i % 16, i / 16) *
                              a.prepared.inverse[input(first + i / 16)] *
                              row_factor<f>(block, a.cols, i % 16);
            store(a, weight, expert, 16 * block_x() + i % 16, a.pairs.list[first + i / 16], sum);
        }
        sync_block();
    }
}

// f32 weights: a warp per weight row (y) of a pair (x).
__global__ void moe_f32_kernel(MoeArgs a, int64_t stride) {
    wait_for_previous();
    const int pair = static_cast<int>(block_x()), weight = a.first_weight + block_z(),
              expert = expert_of(a.routes, a.p, pair / a.p.n_used, pair % a.p.n_used);
    const int64_t row = int64_t{block_y()} * (block_threads() / 32) + warp_index();
    if (row >= a.rows || expert < 0) return;
    const auto* const w =
        reinterpret_cast<const float*>(a.weight[weight] + (int64_t{expert} * a.rows + row) * stride);
    const float* const x = a.x.row(pair / a.p.n_used) + (a.per_row > 1 ? pair % a.p.n_used * a.cols : 0);
    float sum = 0;
    for (int i = lane(); i < a.cols; i += 32) sum = fused(w[i], x[i], sum);
    sum = warp_sum(sum);
    if (lane() == 0) store(a, weight, expert, row, pair, sum);
}

template <TileFormat f, int n>
void launch_experts(const Exec& e, const MoeArgs& a, int32_t weights) {
    const auto experts = std::min<int64_t>(a.p.n_experts, a.x.rows * a.p.n_used);
    const Dims dims{a.rows / 16, static_cast<int32_t>(experts), weights, 256,
                    table_bytes(f) + BlockProduct<f, n>::shared_bytes};
    launch(moe_kernel<format_code(f), n>, dims, *e.stream, a);
}

constexpr size_t alignment = 256;

size_t pairs_bytes(int64_t pairs, int64_t experts) {
    return round_up(static_cast<size_t>(pairs + 2 * experts + 2) * sizeof(int32_t), alignment);
}

// Warps of the block that sorts: so many that each has few pairs to wait for, and their counts have room.
int32_t group_warps(int64_t pairs, int64_t experts) {
    constexpr int64_t most_counts = 8 << 10;
    int32_t warps = 32;
    while (warps > 4 && (warps * experts > most_counts || 16 * warps >= pairs)) warps /= 2;
    return warps;
}

int64_t inputs(const OpArgs& a) {
    return a.in[0].cols == a.in[2].cols ? 1 : int64_t{a.params->as<MoeMatmulParams>().n_used};
}

}  // namespace

bool moe_matmul_supported(const OpArgs& a) {
    constexpr int32_t most_experts = 1024;  // their counts lie in shared memory
    return a.params->as<MoeMatmulParams>().n_experts <= most_experts;
}

size_t moe_matmul_scratch(const Exec& e, const OpArgs& a) {
    const auto& p = a.params->as<MoeMatmulParams>();
    const int64_t rows = a.in[0].rows, cols = a.in[2].cols;
    const size_t prepared = arranged_bytes<8>(rows * inputs(a), cols);
    const size_t together = warpgroups_apply(e, rows) ? warpgroup_scratch(rows * inputs(a), cols) : 0;
    return pairs_bytes(rows * p.n_used, p.n_experts) + std::max(prepared, together);
}

void run_moe_matmul(const Exec& e, const OpArgs& a, std::span<std::byte> scratch) {
    const auto& p = a.params->as<MoeMatmulParams>();
    const Tensor &x = a.in[0], &out = a.out[0];
    Tensor routes = a.in[1];
    routes.rows = x.rows;  // also where there are none
    const auto n_weights = static_cast<size_t>(p.n_weights);
    if (x.rows == 0 || multiply_pairs(e, a)) return;
    const int64_t n_pairs = x.rows * p.n_used, per_row = inputs(a);
    auto* const ints = reinterpret_cast<int32_t*>(scratch.data());
    const Pairs pairs{ints, ints + n_pairs, ints + n_pairs + p.n_experts + 1,
                      ints + n_pairs + 2 * p.n_experts + 1};
    const int32_t warps = group_warps(n_pairs, p.n_experts);
    const size_t counts = static_cast<size_t>(p.n_experts * (warps + 1) + warps) * sizeof(int);
    launch(group_kernel, Dims{1 + blocks_for(n_pairs, 32 * warps), 1, 1, 32 * warps, counts}, *e.stream,
           routes, out, p, pairs);
    const auto memory = scratch.subspan(pairs_bytes(n_pairs, p.n_experts));
    const Tensor none;
    MoeArgs args{{x,
                  routes,
                  out,
                  {},
                  {none, none},
                  p,
                  static_cast<int32_t>(a.in[2].rows / p.n_experts),
                  static_cast<int32_t>(a.in[2].cols),
                  static_cast<int32_t>(per_row),
                  0,
                  pairs,
                  {}},
                 {}};
    for (size_t i = 0; i < n_weights; ++i) {
        args.weight[i] = a.in[2 + i].data;
        args.bias[i] = a.in[2 + n_weights + i];
    }
    args.prepared = arranged<8>(memory.data(), x.rows * per_row, args.cols);
    const bool warpgroups = moe_warpgroups_apply(e, args);
    bool prepared = false;
    for (size_t i = 0, n = 1; i < n_weights; i += n) {
        // Two weights of one type share a launch.
        const Tensor& w = a.in[2 + i];
        n = i + 1 < n_weights && a.in[3 + i].type == w.type ? 2 : 1;
        args.first_weight = static_cast<int32_t>(i);
        if (w.layout == Layout::rows) {
            const Dims dims{n_pairs, static_cast<int32_t>(blocks_for(args.rows, 8)), static_cast<int32_t>(n),
                            256};
            launch(moe_f32_kernel, dims, *e.stream, args, w.stride);
            continue;
        }
        args.table = table_of(w.type);
        if (!prepared) {
            if (warpgroups)
                prepare_moe_warpgroup(e, args, memory);
            else
                prepare_inputs(e, args, args.prepared);
            prepared = true;
        }
        if (warpgroups) {
            multiply_moe_warpgroup(e, args, static_cast<int32_t>(n), w.type, memory);
            continue;
        }
        visit_tile_format(w.type, [&]<TileFormat f>() {
            if (n_pairs <= int64_t{8} * p.n_experts)
                launch_experts<f, 1>(e, args, static_cast<int32_t>(n));
            else
                launch_experts<f, 4>(e, args, static_cast<int32_t>(n));
        });
    }
}

}  // namespace nibble::cuda
