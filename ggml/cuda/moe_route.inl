// How a row's experts are chosen, by its logits, once all are there: at the end of the router's launch or in
// one of its own.

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

struct RouteArgs {
    View logits, bias, scales, out;
    MoeRouteParams p;
    // The logits fall as the scores do.
    __host__ __device__ bool plain() const { return !bias.data && p.n_groups == 1; }
    // What a row's choice needs of shared memory.
    size_t shared_bytes() const {
        return plain() ? 0 : static_cast<size_t>(logits.cols + p.n_groups) * sizeof(float);
    }
};

// Row t, by a warp. Each round finds the first expert in order after the last chosen one.
__device__ inline void route_row(const RouteArgs& a, int64_t t, float* shared) {
    const MoeRouteParams& p = a.p;
    const int n = a.logits.cols;
    const float* const row = a.logits.row(t);
    float* const to = a.out.row(t);
    const bool plain = a.plain();
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
        float* const biased = shared;
        for (int i = lane(); i < n; i += 32) biased[i] = score(i) + (a.bias ? a.bias.row(0)[i] : 0);
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
        to[p.n_used + j] *= factor * (a.scales && expert < n ? a.scales.row(0)[expert] : 1);
    }
}
