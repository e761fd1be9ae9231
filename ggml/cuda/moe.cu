// moe_route and moe_sum: which experts a row uses, and their outputs weighted and added.
// A row's choice and sums depend on that row alone.
#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

// A logit and its expert; the order in which experts are chosen.
struct Choice {
    float logit;
    int expert;
    __device__ bool before(const Choice& o) const {
        return logit > o.logit || (logit == o.logit && expert < o.expert);
    }
};

__device__ Choice warp_first(Choice c) {
    for (int m = 16; m > 0; m /= 2) {
        const Choice other{shuffle_xor(c.logit, m), shuffle_xor(c.expert, m)};
        if (other.before(c)) c = other;
    }
    return c;
}

// A warp per row. Each round finds the first expert in order after the last chosen one.
__global__ void moe_route_kernel(View logits, View out, MoeRouteParams p) {
    const int64_t t = block_x();
    const float* const row = logits.row(t);
    float* const to = out.row(t);
    const Choice none{-INFINITY, logits.cols};
    Choice last{INFINITY, -1};
    float top = 0, sum = 0;
    for (int j = 0; j < p.n_used; ++j) {
        Choice best = none;
        for (int i = lane(); i < logits.cols; i += 32) {
            const Choice c{row[i], i};
            if (last.before(c) && c.before(best)) best = c;
        }
        last = warp_first(best);
        if (j == 0) top = last.logit;
        const float weight = expf(last.logit - top);
        sum += weight;
        if (lane() == 0) {
            to[j] = static_cast<float>(last.expert);
            to[p.n_used + j] = weight;
        }
    }
    if (!p.normalize) {
        sum = 0;
        for (int i = lane(); i < logits.cols; i += 32) sum += expf(row[i] - top);
        sum = warp_sum(sum);
    }
    sync_warp();
    for (int j = lane(); j < p.n_used; j += 32) to[p.n_used + j] /= sum;
}

__global__ void moe_sum_kernel(View y, View routes, View shared, View gate, View out) {
    const int64_t t = block_x();
    const int used = routes.cols / 2, c = block_y() * block_threads() + thread_index();
    if (c >= out.cols) return;
    float sum = 0;
    for (int j = 0; j < used; ++j) sum += routes.row(t)[used + j] * y.row(t)[j * out.cols + c];
    if (shared) {
        const float s = shared.row(t)[c];
        sum += gate ? s / (1 + expf(-gate.row(t)[0])) : s;
    }
    out.row(t)[c] = sum;
}

}  // namespace

void run_moe_route(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    launch(moe_route_kernel, Dims{a.in[0].rows, 1, 1, 32}, *e.stream, a.in[0], a.out[0],
           a.params->as<MoeRouteParams>());
}

void run_moe_sum(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor& out = a.out[0];
    const int32_t threads = threads_for(out.cols);
    const Dims dims{out.rows, static_cast<int32_t>(blocks_for(out.cols, threads)), 1, threads};
    launch(moe_sum_kernel, dims, *e.stream, a.in[0], a.in[1], a.in[2], a.in[3], out);
}

}  // namespace nibble::cuda
