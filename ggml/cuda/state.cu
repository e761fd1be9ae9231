// Kernels over a sequence's state: the convolution over its last inputs, the gated delta rule and the state
// space.
// A row's result depends on the rows before it in its sequence alone, and not on which came in the same step.
#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"

struct StateBatch {
    View seq_rows, positions, page_table;
};

// Consecutive rows of a sequence; a page of -1 is nobody's. The state behind all rows goes to `last`; where
// that is another page, the one behind the first `kept` rows stays in `page`.
struct Run {
    int first, count, kept;
    int64_t page, last;
    bool fresh;
};

__device__ inline Run run_of(const StateBatch& b, int64_t sequence, int64_t n_pages) {
    const int32_t *const rows = b.seq_rows.row<int32_t>(sequence), *const pages =
                                                                       b.page_table.row<int32_t>(sequence);
    const int n = static_cast<int>(b.positions.rows);
    Run run{rows[0], rows[1], pages[1], pages[0], pages[2], false};
    if (run.first < 0 || run.first > n) run.first = n;
    if (run.count > n - run.first) run.count = n - run.first;
    if (run.page >= n_pages || run.last < 0 || run.last >= n_pages) run.page = -1;
    if (run.last == run.page) run.kept = 0;
    if (run.kept > run.count) run.kept = run.count;
    if (run.count > 0) run.fresh = *b.positions.row<int32_t>(run.first) == 0;
    return run;
}

constexpr int conv_rows = 128;  // of a block

// Block x is a sequence, y a run of channels, z a run of its rows. The first rows' block reads the state and
// writes it anew.
__global__ void causal_conv_kernel(View x, View weight, View bias, View state, StateBatch batch, View out,
                                   CausalConvParams p) {
    wait_for_previous();
    const int c = block_y() * block_threads() + thread_index(), kept = p.n_taps - 1;
    const Run run = run_of(batch, block_x(), state.rows / kept);
    const int begin = block_z() * conv_rows;
    if (begin >= run.count || c >= x.cols) return;
    const int end = begin + conv_rows < run.count ? begin + conv_rows : run.count;
    // The input of row r of the sequence; before the first row what the state has.
    float old[max_conv_taps - 1], w[max_conv_taps], inputs[max_conv_taps];
#pragma unroll
    for (int i = 0; i < max_conv_taps - 1; ++i)
        old[i] =
            i < kept && begin == 0 && run.page >= 0 && !run.fresh ? state.row(run.page * kept + i)[c] : 0;
#pragma unroll
    for (int i = 0; i < max_conv_taps; ++i) {
        w[i] = i < p.n_taps ? weight.row(0)[c * p.n_taps + i] : 0;
        const int r = begin - kept + i;
        inputs[i] = i >= kept ? 0 : r >= 0 ? x.row(run.first + r)[c] : old[i < kept ? i : 0];
    }
    const float shift = bias ? bias.row(0)[c] : 0;
    for (int r = begin; r < end; ++r) {
        const float newest = x.row(run.first + r)[c];
        float sum = shift;
#pragma unroll
        for (int i = 0; i < max_conv_taps; ++i) {
            if (i == kept) inputs[i] = newest;
            if (i < p.n_taps) sum = fused(w[i], inputs[i], sum);
        }
        out.row(run.first + r)[c] = run.page < 0 ? 0 : activated(p.act, sum);
#pragma unroll
        for (int i = 0; i < max_conv_taps - 1; ++i) inputs[i] = inputs[i + 1];
    }
    if (begin > 0 || run.page < 0) return;
    const auto leave = [&](int64_t page, int rows) {  // the state behind the first so many
#pragma unroll
        for (int i = 0; i < max_conv_taps - 1; ++i) {
            if (i >= kept) continue;
            const int r = rows - kept + i;
            float value = 0;
#pragma unroll
            for (int j = 0; j < max_conv_taps - 1; ++j)
                if (j == i + rows) value = old[j];
            state.row(page * kept + i)[c] = r >= 0 ? x.row(run.first + r)[c] : value;
        }
    };
    if (run.kept > 0) leave(run.page, run.kept);
    leave(run.last, run.count);
}

constexpr int state_columns = 8;  // of a warp
constexpr int state_warps = 4;    // of a block

// Where rows and states have what a head needs.
struct Heads {
    int n_k_heads, n_v_heads, k_dim, v_dim;
    bool tiled;
    int q, k, v;     // first columns
    int gate_group;  // of the delta rule: heads whose b lie together, and then their a
};

// `gates`: of the delta rule b and a of all heads, else dt; `skip`: not of the delta rule.
struct StateArgs {
    View x, gates, decay, bias, skip, state;
    StateBatch batch;
    View out;
    Heads p;
};

// The sums over the warp of eight values of each lane: lane l gets that of value l / 4.
__device__ inline float warp_sums8(const float* v) {
    const bool high16 = lane() & 16, high8 = lane() & 8, high4 = lane() & 4;
    float four[4], two[2];
#pragma unroll
    for (int j = 0; j < 4; ++j)
        four[j] = (high16 ? v[j + 4] : v[j]) + shuffle_xor(high16 ? v[j] : v[j + 4], 16);
#pragma unroll
    for (int j = 0; j < 2; ++j)
        two[j] = (high8 ? four[j + 2] : four[j]) + shuffle_xor(high8 ? four[j] : four[j + 2], 8);
    float sum = (high4 ? two[1] : two[0]) + shuffle_xor(high4 ? two[0] : two[1], 4);
    sum += shuffle_xor(sum, 2);
    return sum + shuffle_xor(sum, 1);
}

// What a lane needs of one row: its part of q and k, the value of its column, the gates.
template <int parts>
struct StateRow {
    float q[parts], k[parts], v, beta, alpha;
};

// Block x is a sequence, y a head, z a run of columns of its matrix. Of the matrix each lane holds rows lane,
// lane + 32 .. in its warp's columns.
template <int parts, bool corrects>
__global__ void state_kernel(StateArgs a) {
    wait_for_previous();
    const Heads& p = a.p;
    const int head = block_y(), heads = p.n_v_heads;
    const int first = (block_z() * state_warps + warp_index()) * state_columns;
    const int64_t page_rows = static_cast<int64_t>(heads) * p.k_dim;
    const Run run = run_of(a.batch, block_x(), a.state.rows / page_rows);
    if (run.count <= 0 || first >= p.v_dim) return;
    const int column = first + lane() / 4;
    const bool writes = lane() % 4 == 0 && column < p.v_dim;
    if (run.page < 0) {
        for (int r = 0; r < run.count && writes; ++r) a.out.row(run.first + r)[head * p.v_dim + column] = 0;
        return;
    }
    const auto matrix = [&](int64_t page) { return page * page_rows + static_cast<int64_t>(head) * p.k_dim; };
    float s[parts][state_columns];
#pragma unroll
    for (int i = 0; i < parts; ++i)
#pragma unroll
        for (int j = 0; j < state_columns; ++j) {
            const int row = lane() + 32 * i;
            const bool there = !run.fresh && row < p.k_dim && first + j < p.v_dim;
            s[i][j] = there ? a.state.row(matrix(run.page) + row)[first + j] : 0;
        }
    const auto leave = [&](int64_t page) {
#pragma unroll
        for (int i = 0; i < parts; ++i)
#pragma unroll
            for (int j = 0; j < state_columns; ++j) {
                const int row = lane() + 32 * i;
                if (row < p.k_dim && first + j < p.v_dim)
                    a.state.row(matrix(page) + row)[first + j] = s[i][j];
            }
    };
    const int first_gate = corrects ? head + head / p.gate_group * p.gate_group : head;
    const int key = (p.tiled ? head % p.n_k_heads : head / (heads / p.n_k_heads)) * p.k_dim;
    const auto read = [&](int r) {
        StateRow<parts> row;
        const float* const in = a.x.row(run.first + r);
#pragma unroll
        for (int i = 0; i < parts; ++i) {
            const int at = lane() + 32 * i;
            row.q[i] = at < p.k_dim ? in[p.q + key + at] : 0;
            row.k[i] = at < p.k_dim ? in[p.k + key + at] : 0;
        }
        row.v = column < p.v_dim ? in[p.v + head * p.v_dim + column] : 0;
        const float* const gates = a.gates.row(run.first + r) + first_gate;
        row.beta = corrects ? gates[0] : 0;
        row.alpha = gates[corrects ? p.gate_group : 0];
        return row;
    };
    const float decay = a.decay.row(0)[head], shift = a.bias.row(0)[head];
    const float skip = corrects ? 0 : a.skip.row(0)[head];
    const float scale = 1 / sqrtf(static_cast<float>(p.k_dim));
    StateRow<parts> next = read(0);
    for (int r = 0; r < run.count; ++r) {
        StateRow<parts> row = next;
        if (r + 1 < run.count) next = read(r + 1);
        const float d = softplus(row.alpha + shift), g = expf(decay * d);
        float delta = d * row.v, sum[state_columns] = {};
        if constexpr (corrects) {
            float qq = 0, kk = 0, had[state_columns] = {};
#pragma unroll
            for (int i = 0; i < parts; ++i)
                qq = fused(row.q[i], row.q[i], qq), kk = fused(row.k[i], row.k[i], kk);
            const float q_scale = scale / sqrtf(warp_sum(qq) + state_norm_eps),
                        k_scale = 1 / sqrtf(warp_sum(kk) + state_norm_eps);
#pragma unroll
            for (int i = 0; i < parts; ++i) {
                row.q[i] *= q_scale, row.k[i] *= k_scale;
#pragma unroll
                for (int j = 0; j < state_columns; ++j) had[j] = fused(row.k[i], s[i][j], had[j]);
            }
            delta = (row.v - g * warp_sums8(had)) / (1 + expf(-row.beta));
        }
#pragma unroll
        for (int j = 0; j < state_columns; ++j) {
            const float added = shuffle(delta, 4 * j);
#pragma unroll
            for (int i = 0; i < parts; ++i) {
                s[i][j] = fused(row.k[i], added, g * s[i][j]);
                sum[j] = fused(row.q[i], s[i][j], sum[j]);
            }
        }
        const float result = warp_sums8(sum) + skip * row.v;
        if (writes) a.out.row(run.first + r)[head * p.v_dim + column] = result;
        if (r + 1 == run.kept) leave(run.page);
    }
    leave(run.last);
}

}  // namespace

void run_causal_conv(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor& out = a.out[0];
    if (out.rows == 0 || a.in[4].rows == 0) return;
    const int32_t threads = threads_for(out.cols, 128);
    const Dims dims{a.in[4].rows, static_cast<int32_t>(blocks_for(out.cols, threads)),
                    static_cast<int32_t>(blocks_for(out.rows, conv_rows)), threads};
    launch(causal_conv_kernel, dims, *e.stream, a.in[0], a.in[1], a.in[2], a.in[3],
           StateBatch{a.in[4], a.in[5], a.in[6]}, out, a.params->as<CausalConvParams>());
}

namespace {

template <bool corrects>
void run_heads(const Exec& e, const StateArgs& args) {
    const Heads& p = args.p;
    if (args.out.rows == 0 || args.batch.seq_rows.rows == 0) return;
    const Dims dims{args.batch.seq_rows.rows, p.n_v_heads,
                    static_cast<int32_t>(blocks_for(p.v_dim, state_warps * state_columns)), 32 * state_warps};
    if (p.k_dim <= 32) return launch(state_kernel<1, corrects>, dims, *e.stream, args);
    if (p.k_dim <= 64) return launch(state_kernel<2, corrects>, dims, *e.stream, args);
    if (p.k_dim <= 128) return launch(state_kernel<4, corrects>, dims, *e.stream, args);
    launch(state_kernel<8, corrects>, dims, *e.stream, args);
}

}  // namespace

void run_delta_rule(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const auto& p = a.params->as<DeltaRuleParams>();
    const int keys = p.n_k_heads * p.k_dim;
    const StateBatch batch{a.in[5], a.in[6], a.in[7]};
    const Heads heads{p.n_k_heads, p.n_v_heads, p.k_dim,  p.v_dim,           p.tiled,
                      0,           keys,        2 * keys, p.gates_in_group()};
    run_heads<true>(e,
                    StateArgs{a.in[0], a.in[1], a.in[2], a.in[3], Tensor{}, a.in[4], batch, a.out[0], heads});
}

void run_ssm_scan(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const auto& p = a.params->as<SsmScanParams>();
    const int values = p.n_heads * p.v_dim, keys = p.n_groups * p.k_dim;
    const StateBatch batch{a.in[6], a.in[7], a.in[8]};
    const Heads heads{p.n_groups, p.n_heads, p.k_dim, p.v_dim, false, values + keys, values, 0, p.n_heads};
    run_heads<false>(e,
                     StateArgs{a.in[0], a.in[1], a.in[2], a.in[3], a.in[4], a.in[5], batch, a.out[0], heads});
}

}  // namespace nibble::cuda
