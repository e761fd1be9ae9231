// What the kernels of attention share: their arguments, and how the parts of a context are joined.
// Included by attention.cu alone, before the kernels.
#pragma once

#include "ggml/cuda/view.h"
#include "ggml/ops/ops.h"

namespace nibble::cuda {

// A context is cut at multiples of this many positions. Each split is reduced by itself and the splits are
// joined in order, by one block or by many: who does it changes no bit of the result.
constexpr int split_positions = 256;

constexpr float log2e = 1.4426950408889634f;

// Sequences that a launch answers for: all, or those of few query rows, or those of many.
enum class Cover : uint8_t { all, narrow, wide };
constexpr int narrow_rows = 16;  // query rows (tokens times heads of a group) of a narrow sequence, at most

struct AttentionArgs {
    View q, k_cache, v_cache, seq_rows, positions, page_table, sinks, out;
    AttentionParams p;
    Type k_type, v_type;
    Cover cover;
    int group, page_shift, stages;
    int walkers;  // blocks (z) that divide the splits of a tile: 1 without partial sums
    // Split by split, sums of weighted values, then pairs (largest score, sum of weights), scores in base 2;
    // null: a block joins its splits itself, in `out`.
    float* partial;
    float* partial_sums;
    int splits;  // that the page table can address
};

// Where a softmax stands: the largest score so far, in base 2, and the sum of weights relative to it.
struct Softmax {
    float most = -INFINITY, sum = 0;
};

// What two softmaxes' values are multiplied with when they are joined.
struct Join {
    float first, second;
};

// Joins `next` to `total`. Fused operations are spelled out, so that every caller gets the same bits.
__device__ inline Join join(Softmax& total, const Softmax& next) {
    const float most = next.most > total.most ? next.most : total.most;
    const float reference = most == -INFINITY ? 0 : most;
    const Join j{exp2f(total.most - reference), exp2f(next.most - reference)};
    total = {most, fmaf(total.sum, j.first, next.sum * j.second)};
    return j;
}
__device__ inline float joined(float total, float next, const Join& j) {
    return fmaf(total, j.first, next * j.second);
}

// What the sum of weighted values is multiplied with in the end; a sink takes part of the weight.
__device__ inline float normaliser(const Softmax& total, const View& sinks, int head) {
    if (!sinks) return total.sum > 0 ? 1 / total.sum : 0;
    const float sink = sinks.row(0)[head] * log2e;
    const float most = sink > total.most ? sink : total.most;
    const float f = exp2f(total.most - most);
    return f / fmaf(total.sum, f, exp2f(sink - most));
}

// Query rows of one sequence: row r is token `first` + r / group with head r % group of its group.
struct QueryTile {
    int sequence = 0, first = 0, rows = 0;  // all rows of the sequence
    int row = 0;                            // the tile's first
};

// The index-th tile of `height` rows, those with the longest context first; called by whole warps.
__device__ inline bool find_tile(const AttentionArgs& a, int64_t index, int height, QueryTile& tile) {
    for (int64_t base = 0; base < a.seq_rows.rows; base += 32) {
        int first = 0, rows = 0;
        if (base + lane() < a.seq_rows.rows) {
            const int32_t* const r = a.seq_rows.row<int32_t>(base + lane());
            const auto tokens = static_cast<int>(a.q.rows);
            first = r[0] < 0 ? 0 : r[0] > tokens ? tokens : r[0];
            rows = (r[1] < 0 ? 0 : r[1] > tokens - first ? tokens - first : r[1]) * a.group;
        }
        if (a.cover != Cover::all && (rows <= narrow_rows) != (a.cover == Cover::narrow)) rows = 0;
        const int tiles = (rows + height - 1) / height;
        int end = tiles;  // of this lane's sequence and those before it
        for (int d = 1; d < 32; d *= 2) {
            const int before = shuffle(end, (lane() + 32 - d) % 32);
            if (lane() >= d) end += before;
        }
        const int all = shuffle(end, 31);
        if (index < all) {
            int owner = index < end && index >= end - tiles ? lane() : 0;
            for (int m = 16; m > 0; m /= 2) {
                const int other = shuffle_xor(owner, m);
                owner = other > owner ? other : owner;
            }
            const int last = shuffle(end, owner) - 1;
            tile = {static_cast<int>(base) + owner, shuffle(first, owner), shuffle(rows, owner),
                    (last - static_cast<int>(index)) * height};
            return true;
        }
        index -= all;
    }
    return false;
}

// The record of a tile's r-th row and a kv head, to be followed by the number of splits.
__device__ inline int64_t record_of(const AttentionArgs& a, const QueryTile& tile, int64_t index, int height,
                                    int r, int kv_head) {
    const int64_t row = a.cover == Cover::all ? int64_t{tile.first} * a.group + tile.row : index * height;
    return ((row + r) * a.p.n_kv_heads + kv_head) * a.splits;
}

}  // namespace nibble::cuda
