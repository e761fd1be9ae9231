// moe_route and moe_sum: which experts a row uses, and their outputs weighted and added; the router before
// it. A row's choice and sums depend on that row alone.
#include <algorithm>
#include <iterator>

#include "ggml/cuda/arrivals.h"
#include "ggml/cuda/moe_sum.h"
#include "ggml/cuda/product.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/moe_route.inl"
#include "ggml/cuda/norm.inl"

// A warp per row.
__global__ void moe_route_kernel(RouteArgs a) {
    wait_for_previous();
    route_row(a, block_x(), reinterpret_cast<float*>(shared_memory()));
}

__global__ void moe_sum_kernel(SumArgs a) {
    wait_for_previous();
    const int c = block_y() * block_threads() + thread_index();
    if (c < a.out.cols) sum_experts(a, block_x(), c);
}

// The norm of a row, the router's weights in rows of f32, and the choice.
struct RouterArgs {
    View x;
    RowNorm norm;
    const std::byte* weight;
    int64_t weight_stride;
    View bias;
    RouteArgs route;
    int* counters;  // of each row
};

// A row's value as the norm leaves it.
__device__ inline float normed(float x, float factor, const float* weight, int i) {
    return weight ? x * factor * weight[i] : x * factor;
}

// Block x: a row; y: some experts, a warp for each. The last block of a row chooses. Sums have the order of
// matmul_f32.inl, and the norm that of its own kernel.
constexpr int router_warps = norm_threads / 32;
__global__ void __launch_bounds__(norm_threads) router_kernel(RouterArgs a) {
    constexpr int at_once = 32;
    auto* const shared = reinterpret_cast<float*>(shared_memory());
    const View& logits = a.route.logits;
    const int64_t row = block_x();
    const int n = a.x.cols, expert = block_y() * router_warps + warp_index();
    const auto* const w = reinterpret_cast<const float*>(
        a.weight + (expert < logits.cols ? expert : logits.cols - 1) * a.weight_stride);
    float ahead[at_once];
    const auto load = [&](int first) {
#pragma unroll
        for (int j = 0; j < at_once; ++j)
            ahead[j] = bits_float(load4(w + (first + 32 * j < n ? first + 32 * j : 0)));
    };
    load(lane());
    wait_for_previous();
    const float *const x = a.x.row(row), *const norm_weight = a.norm.weight ? a.norm.weight.row(0) : nullptr;
    const float factor = norm_factor(x, n, 0, a.norm.eps, shared);
    if (block_y() == 0)
        for (int i = thread_index(); i < n; i += norm_threads)
            a.norm.out.row(row)[i] = normed(x[i], factor, norm_weight, i);
    float sum = 0;
    for (int first = lane(); first < n; first += 32 * at_once) {
        float now[at_once], v[at_once];
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
            const int i = first + 32 * j < n ? first + 32 * j : 0;
            now[j] = ahead[j], v[j] = normed(x[i], factor, norm_weight, i);
        }
        load(first + 32 * at_once);
#pragma unroll
        for (int j = 0; j < at_once; ++j)
            if (first + 32 * j < n) sum = fused(now[j], v[j], sum);
    }
    sum = warp_sum(sum);
    if (lane() == 0 && expert < logits.cols)
        logits.row(row)[expert] = a.bias ? sum + a.bias.row(0)[expert] : sum;
    const auto blocks = static_cast<int>((logits.cols + router_warps - 1) / router_warps);
    if (arrived_last(a.counters + row, blocks, reinterpret_cast<int*>(shared)) && warp_index() == 0)
        route_row(a.route, row, shared + router_warps);
}

RouteArgs route_args(const OpArgs& a) {
    return {a.in[0], a.in[1], a.in[2], a.out[0], a.params->as<MoeRouteParams>()};
}

void launch_moe_sum(const Exec& e, const SumArgs& args) {
    const int32_t threads = threads_for(args.out.cols);
    launch(moe_sum_kernel,
           Dims{args.out.rows, static_cast<int32_t>(blocks_for(args.out.cols, threads)), 1, threads},
           *e.stream, args);
}

}  // namespace

bool moe_route_supported(const OpArgs& a) {
    const auto& p = a.params->as<MoeRouteParams>();
    constexpr int64_t most_gated = 8192;  // their choices lie in shared memory
    return (!a.in[1].cols && p.n_groups == 1) || a.in[0].cols <= most_gated;
}

void run_moe_route(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const RouteArgs args = route_args(a);
    launch(moe_route_kernel, Dims{a.in[0].rows, 1, 1, 32, args.shared_bytes()}, *e.stream, args);
}

void run_moe_sum(const Exec& e, const OpArgs& a, std::span<std::byte>) { launch_moe_sum(e, sum_args(a)); }

size_t run_joined_moe_sum(const Exec& e, std::span<const BoundInstr> instrs) {
    SumArgs args;
    if (sum_at(instrs, args) < 2) return 0;
    launch_moe_sum(e, args);
    return 2;
}

// Few rows: each of a row's blocks norms it for itself.
size_t run_joined_router(const Exec& e, std::span<const BoundInstr> instrs) {
    if (!is_at(instrs, 0, norm_op) || !is_at(instrs, 1, matmul_op) || !is_at(instrs, 2, moe_route_op))
        return 0;
    const OpArgs norm = instrs[0].args(), m = instrs[1].args(), route = instrs[2].args();
    const Tensor &x = norm.in[0], &h = norm.out[0], &w = m.in[2], &logits = m.out[0];
    if (x.rows == 0 || x.rows > most_few || !is_row_norm(norm) ||
        m.params->as<MatmulParams>().n_weights != 1 || m.in[1] || w.layout != Layout::rows ||
        m.in[0].data != h.data || route.in[0].data != logits.data)
        return 0;
    const Tensor* const apart[] = {&x, &h, &logits, &route.out[0]};
    for (size_t i = 0; i < std::size(apart); ++i)
        for (size_t j = 0; j < i; ++j)
            if (overlap(*apart[i], *apart[j])) return 0;
    const RouterArgs args{x,         {true, norm.params->as<NormParams>().eps, norm.in[1], h},
                          w.data,    w.stride,
                          m.in[3],   route_args(route),
                          e.counters};
    const Dims dims{x.rows, static_cast<int32_t>(blocks_for(logits.cols, router_warps)), 1, norm_threads,
                    router_warps * sizeof(float) + args.route.shared_bytes()};
    if (dims.shared > e.card->shared_per_block) return 0;
    launch(router_kernel, dims, *e.stream, args);
    return 3;
}

}  // namespace nibble::cuda
