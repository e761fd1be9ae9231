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

// Takes the choice from all but the best groups. `scores` holds one float per group.
__device__ void limit_groups(const MoeRouteParams& p, float* choice, int n, float* scores) {
    const int size = n / p.n_groups;
    for (int g = lane(); g < p.n_groups; g += 32) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = g * size; i < (g + 1) * size; ++i) {
            const float c = choice[i];
            if (c > first) {
                second = first;
                first = c;
            } else if (c > second) {
                second = c;
            }
        }
        scores[g] = p.gating == Gating::sigmoid && size > 1 ? first + second : first;
    }
    sync_warp();
    for (int g = lane(); g < p.n_groups; g += 32) {
        int before = 0;
        for (int o = 0; o < p.n_groups; ++o)
            before += scores[o] > scores[g] || (scores[o] == scores[g] && o < g);
        if (before < p.n_groups_used) continue;
        for (int i = g * size; i < (g + 1) * size; ++i) choice[i] = -INFINITY;
    }
    sync_warp();
}

// A warp per row. Each round finds the first expert in order after the last chosen one.
__global__ void moe_route_kernel(View logits, View bias, View scales, View out, MoeRouteParams p) {
    wait_for_previous();
    const int64_t t = block_x();
    const int n = logits.cols;
    const float* const row = logits.row(t);
    float* const to = out.row(t);
    const bool plain = !bias && p.n_groups == 1;  // the logits fall as the scores do
    float top = -INFINITY, total = 1;
    for (int i = lane(); i < n; i += 32) top = fmaxf(top, row[i]);
    top = warp_max(top);
    const auto score = [&](int e) {
        return p.gating == Gating::sigmoid ? 1 / (1 + expf(-row[e])) : expf(row[e] - top) / total;
    };
    if (p.gating == Gating::softmax && !(plain && p.normalize)) {
        float sum = 0;
        for (int i = lane(); i < n; i += 32) sum += expf(row[i] - top);
        total = warp_sum(sum);
    }
    const float* choice = row;
    if (!plain) {
        auto* const biased = reinterpret_cast<float*>(shared_memory());
        for (int i = lane(); i < n; i += 32) biased[i] = score(i) + (bias ? bias.row(0)[i] : 0);
        sync_warp();
        if (p.n_groups > 1) limit_groups(p, biased, n, biased + n);
        choice = biased;
    }
    const Choice none{-INFINITY, n};
    Choice last{INFINITY, -1};
    float sum = 0;
    for (int j = 0; j < p.n_used; ++j) {
        Choice best = none;
        for (int i = lane(); i < n; i += 32) {
            const Choice c{choice[i], i};
            if (last.before(c) && c.before(best)) best = c;
        }
        last = warp_first(best);
        const float weight = last.expert < n ? score(last.expert) : 0;
        sum += weight;
        if (lane() == 0) {
            to[j] = static_cast<float>(last.expert);
            to[p.n_used + j] = weight;
        }
    }
    sync_warp();
    const float factor = p.normalize ? p.scale / sum : p.scale;
    for (int j = lane(); j < p.n_used; j += 32) {
        const int expert = static_cast<int>(to[j]);
        to[p.n_used + j] *= factor * (scales && expert < n ? scales.row(0)[expert] : 1);
    }
}

// What the sum is added to, as the op `add` does it; `scale`: of the sum.
struct AddedTo {
    View residual;
    float scale;
};

__global__ void moe_sum_kernel(View y, View routes, View shared, View gate, AddedTo to, View out) {
    wait_for_previous();
    const int64_t t = block_x();
    const int used = routes.cols / 2, c = block_y() * block_threads() + thread_index();
    if (c >= out.cols) return;
    float sum = 0;
    for (int j = 0; j < used; ++j) sum += routes.row(t)[used + j] * y.row(t)[j * out.cols + c];
    if (shared) {
        const float s = shared.row(t)[c];
        sum += gate ? s / (1 + expf(-gate.row(t)[0])) : s;
    }
    out.row(t)[c] = to.residual ? to.residual.row(t)[c] + to.scale * sum : sum;
}

}  // namespace

bool moe_route_supported(const OpArgs& a) {
    const auto& p = a.params->as<MoeRouteParams>();
    constexpr int64_t most_gated = 8192;  // their choices lie in shared memory
    return (!a.in[1].cols && p.n_groups == 1) || a.in[0].cols <= most_gated;
}

void run_moe_route(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const auto& p = a.params->as<MoeRouteParams>();
    const bool plain = !a.in[1] && p.n_groups == 1;
    const size_t shared = plain ? 0 : static_cast<size_t>(a.in[0].cols + p.n_groups) * sizeof(float);
    launch(moe_route_kernel, Dims{a.in[0].rows, 1, 1, 32, shared}, *e.stream, a.in[0], a.in[1], a.in[2],
           a.out[0], p);
}

namespace {

void launch_moe_sum(const Exec& e, const OpArgs& a, const AddedTo& to, const Tensor& out) {
    const int32_t threads = threads_for(out.cols);
    const Dims dims{out.rows, static_cast<int32_t>(blocks_for(out.cols, threads)), 1, threads};
    launch(moe_sum_kernel, dims, *e.stream, a.in[0], a.in[1], a.in[2], a.in[3], to, out);
}

}  // namespace

void run_moe_sum(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    launch_moe_sum(e, a, {Tensor{}, 1}, a.out[0]);
}

// A value of the residual may be where its result goes; what the sum is made of may not, for it is read by
// other blocks, too.
size_t run_joined_moe_sum(const Exec& e, std::span<const BoundInstr> instrs) {
    if (instrs.size() < 2 || instrs[0].instr->op != &moe_sum_op || instrs[1].instr->op != &add_op ||
        instrs[0].instr->read_until != 1)
        return 0;
    const OpArgs sum = instrs[0].args(), add = instrs[1].args();
    const Tensor &residual = add.in[0], &out = add.out[0];
    const bool whole = add.in[1].data == sum.out[0].data && add.in[1].rows == sum.out[0].rows &&
                       residual.data != sum.out[0].data && residual.rows == out.rows;
    const bool apart = std::ranges::none_of(sum.in, [&](const Tensor& t) { return overlap(t, out); });
    if (!whole || !apart || (overlap(residual, out) && residual.data != out.data)) return 0;
    launch_moe_sum(e, sum, {residual, add.params->as<AddParams>().scale}, out);
    return 2;
}

}  // namespace nibble::cuda
