// What the kernels of attention share: their arguments, and how the parts of a context are joined.
// Included by attention.cu and attention_stream.cu, before the kernels.
#pragma once

#include "ggml/cuda/arrivals.h"
#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {

// A context is cut into splits at fixed positions. Each split is reduced by itself and the splits are joined
// in order, by one block or by many: who does it changes no bit of the result. Splits are short where a short
// context needs them to occupy a card, and longer where there are many.
__host__ __device__ inline int split_of(int position) {
    if (position < 4096) return position / 128;
    return position < 32768 ? 16 + position / 256 : 80 + position / 512;
}
__host__ __device__ inline int split_begin(int split) {
    if (split < 32) return split * 128;
    return split < 144 ? (split - 16) * 256 : (split - 80) * 512;
}

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
    int splits;     // that the page table can address
    int* counters;  // zeros, one per tile and kv head: the last of a tile's blocks joins; null: a kernel does
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

// Where the softmax of a row is after each of 32 splits, and the rest of the row: called by a whole warp,
// which joins the splits `first` .. `last` of a record and writes `out`. dim: of the values, rounded up.
template <int dim>
__device__ inline void join_splits(const AttentionArgs& a, int64_t record, int first, int last, int head,
                                   float* out) {
    // As many on their way as there are registers for: each group of splits waits for memory anew.
    constexpr int columns = dim / 32, at_once = dim <= 64 ? 32 : 64 / columns, step = dim <= 128 ? 8 : 4;
    static_assert(32 % at_once == 0 && at_once % step == 0);
    // What comes next is asked for as soon as there is room. Splits behind the last are zeros.
    const auto read_sums = [&](int base) {
        Softmax s;
        if (base + lane() <= last) {
            s.most = a.partial_sums[2 * (record + base + lane())];
            s.sum = a.partial_sums[2 * (record + base + lane()) + 1];
        }
        return s;
    };
    float values[at_once][columns];
    const auto read_values = [&](int split) {
#pragma unroll
        for (int i = 0; i < at_once; ++i)
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                const int col = c * 32 + lane();
                const float* const from = a.partial + (record + split + i) * a.p.v_head_dim;
                values[i][c] = split + i <= last && col < a.p.v_head_dim ? from[col] : 0;
            }
    };
    Softmax total, next = read_sums(first);
    read_values(first);
    float value[columns] = {};
    for (int base = first; base <= last; base += 32) {
        const int left = last - base + 1, n = left < 32 ? left : 32;
        const Softmax sums_behind = read_sums(base + 32);
        float most = next.most > total.most ? next.most : total.most;  // up to and with this lane's split
        for (int d = 1; d < 32; d *= 2) {
            const float other = shuffle(most, (lane() + 32 - d) % 32);
            if (lane() >= d && other > most) most = other;
        }
        const float earlier = shuffle(most, (lane() + 31) % 32);
        Softmax before{lane() == 0 ? total.most : earlier, 0};
        const Join j = join(before, next);
        for (int group = 0; group < n; group += at_once) {
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                if (i > 0 && i % step == 0 && group + i >= n) break;  // nothing is left
                // Lanes without a split change nothing: they join with 1 and 0.
                const Join k{shuffle(j.first, group + i), shuffle(j.second, group + i)};
                total.sum = joined(total.sum, shuffle(next.sum, group + i), k);
#pragma unroll
                for (int c = 0; c < columns; ++c) value[c] = joined(value[c], values[i][c], k);
            }
            read_values(base + group + at_once);
        }
        total.most = shuffle(most, 31);
        next = sums_behind;
    }
    const float scale = normaliser(total, a.sinks, head);
#pragma unroll
    for (int c = 0; c < columns; ++c)
        if (c * 32 + lane() < a.p.v_head_dim) out[c * 32 + lane()] = value[c] * scale;
}

// Query rows of one sequence: row r is token `first` + r / group with head r % group of its group.
struct QueryTile {
    int sequence = 0, first = 0, rows = 0;  // all rows of the sequence
    int row = 0;                            // the tile's first
};

__device__ inline int first_attended(const AttentionParams& p, int position) {
    return p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
}

// Where sequences and their positions are is among the inputs of a step, which none of its launches writes:
// that can be read before the launch before has ended.
__device__ inline int input(const int32_t* p) { return static_cast<int>(load4(p)); }

// Positions that the rows of a tile attend to.
struct Reach {
    int position;                // of the sequence's first token in the step
    int lowest, last;            // that some row attends to
    int common_from, common_to;  // that every row attends to

    __device__ Reach(const AttentionArgs& a, const QueryTile& tile, int height)
        : position(input(a.positions.row<int32_t>(tile.first))) {
        const int end = tile.row + height < tile.rows ? tile.row + height : tile.rows;
        const int64_t limit = int64_t{a.page_table.cols} << a.page_shift;
        common_to = position + tile.row / a.group;
        last = position + (end - 1) / a.group;
        last = last < limit ? last : static_cast<int>(limit) - 1;
        lowest = first_attended(a.p, common_to);
        lowest = lowest < last ? lowest : last;
        common_from = first_attended(a.p, last);
    }
};

// The splits of a tile that one of the blocks takes which divide them: those of a run of positions, all of
// about the same length.
struct Walk {
    int blocks;      // that have some
    int first, end;  // splits

    __device__ Walk(const AttentionArgs& a, const Reach& reach, int which) {
        const int lowest = split_of(reach.lowest), last = split_of(reach.last);
        // Runs begin at multiples of the longest split, where shorter ones begin, too.
        const int longest = split_begin(last + 1) - split_begin(last);
        const int from = split_begin(lowest) / longest * longest, positions = reach.last + 1 - from;
        const int share = (positions + a.walkers - 1) / a.walkers;
        const int each = (share + longest - 1) / longest * longest;
        blocks = (positions + each - 1) / each;
        first = which == 0 ? lowest : split_of(from + which * each);
        end = which + 1 < blocks ? split_of(from + (which + 1) * each) : last + 1;
    }
};

// The index-th tile of `height` rows, those with the longest context first; called by whole warps.
__device__ inline bool find_tile(const AttentionArgs& a, int64_t index, int height, QueryTile& tile) {
    for (int64_t base = 0; base < a.seq_rows.rows; base += 32) {
        int first = 0, rows = 0;
        if (base + lane() < a.seq_rows.rows) {
            const int32_t* const r = a.seq_rows.row<int32_t>(base + lane());
            const auto tokens = static_cast<int>(a.q.rows);
            const int begin = input(r), count = input(r + 1);
            first = begin < 0 ? 0 : begin > tokens ? tokens : begin;
            rows = (count < 0 ? 0 : count > tokens - first ? tokens - first : count) * a.group;
        }
        if (a.cover != Cover::all && (rows <= narrow_rows) != (a.cover == Cover::narrow)) rows = 0;
        const int tiles = (rows + height - 1) / height;
        const int end = warp_sum_up_to(tiles);  // of this lane's sequence and those before it
        const int all = shuffle(end, 31);
        if (index < all) {
            const int owner = warp_max(index < end && index >= end - tiles ? lane() : 0);
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

// Joins the splits of a tile's r-th row; called by a warp.
template <int dim>
__device__ inline void join_row(const AttentionArgs& a, const QueryTile& tile, int64_t index, int height,
                                int r) {
    const int row = tile.row + r, token = tile.first + row / a.group;
    const int head = block_y() * a.group + row % a.group;
    const Reach reach(a, tile, height);
    const int position = reach.position + row / a.group;
    const int last = position < reach.last ? position : reach.last;
    join_splits<dim>(a, record_of(a, tile, index, height, r, block_y()),
                     split_of(first_attended(a.p, position)), split_of(last), head,
                     a.out.row(token) + head * a.p.v_head_dim);
}

// Where the row of a position is. Rows of a page are in 32 bits (has_tiles() sees to it), so that an address
// takes two multiplications of 32 bits by 32.
__device__ inline const std::byte* cache_row(const AttentionArgs& a, const View& cache, int kv_head, int page,
                                             int position) {
    const auto stride = static_cast<uint32_t>(cache.stride), heads = static_cast<uint32_t>(a.p.n_kv_heads);
    const uint32_t in_page = static_cast<uint32_t>(position) & ((1u << a.page_shift) - 1);
    const uint32_t row = (static_cast<uint32_t>(kv_head) << a.page_shift) + in_page;
    return cache.data +
           uint64_t{page < 0 ? 0u : static_cast<uint32_t>(page)} * ((heads << a.page_shift) * stride) +
           uint64_t{row} * stride;
}

// The power of two that queries are multiplied with, and what makes a score in base 2 (or the soft cap's
// argument) of a product of such; `largest`: of the lane's values, of which four neighbours have a row's.
struct QueryScale {
    float scale, of_product;
    __device__ QueryScale(const AttentionParams& p, float largest) {
        for (int m = 1; m < 4; m *= 2) {
            const float other = shuffle_xor(largest, m);
            largest = other > largest ? other : largest;
        }
        // Exponents of normal numbers, as they lie in their bits.
        constexpr uint32_t of_one = 127, of_scaled = of_one + 8;
        const uint32_t exponent =
            largest > 0x1p-80f && largest < 0x1p80f ? float_bits(largest) >> 23 : of_scaled;
        scale = bits_float((of_one + of_scaled - exponent) << 23);
        const float unscaled = p.scale * bits_float((of_one + exponent - of_scaled) << 23);
        of_product = p.softcap > 0 ? unscaled / p.softcap : unscaled * log2e;
    }
};

template <bool bf16>
__device__ void multiply(float (&d)[4], const uint32_t (&x)[4], uint32_t b0, uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
    if constexpr (bf16)
        mma_bf16(d, x, b);
    else
        mma_f16(d, x, b);
}
template <bool bf16>
constexpr uint32_t one_twice = bf16 ? 0x3f803f80 : 0x3c003c00;

// Whether the tile's other blocks have recorded their splits; called once, by the whole block. `shared`: room
// for a number.
__device__ inline bool arrived_last(const AttentionArgs& a, const Walk& walk, int64_t index, int kv_head,
                                    int* shared) {
    return arrived_last(a.counters + index * a.p.n_kv_heads + kv_head, walk.blocks, shared);
}

// How caches come into shared memory: as they are, or converted to f16 there.
enum class CacheKind : uint8_t { f16, bf16, converted };

// What an attention's kernels are told, but for how they share the work; whether the tile kernel can read its
// caches, and which of its kinds they are.
AttentionArgs attention_args(const OpArgs&);
bool has_tiles(const OpArgs&, CacheKind& kind);

// Attention of few query rows, where they have arithmetic of their own: those that `args` cover, over caches
// that the tile kernel takes too.
bool attention_streams(const Exec&, const OpArgs&, CacheKind);
void stream_attention(const Exec&, const OpArgs&, CacheKind, const AttentionArgs& args,
                      std::span<std::byte> scratch);

// Heads of latent attention (DeepSeek): values are the last columns of the keys, and are read where these
// lie.
constexpr int latent_dim = 576, latent_v_dim = 512;

// A block's shape: four warps, in `row_groups` groups of 16 query rows, or (generation 9.0) eight with 16
// rows each, of which four multiply together as a warpgroup.
template <CacheKind kind, int dim, int row_groups, bool together = false>
struct TileShape {
    static constexpr bool warpgroup = together;
    static_assert(!warpgroup || (row_groups == 8 && dim % 64 == 0 && dim <= 128));
    static constexpr int threads = warpgroup ? 256 : 128;
    static constexpr bool latent = dim == latent_dim;
    static constexpr int v_dim = latent ? latent_v_dim : dim;
    static constexpr int sharers = warpgroup ? 1 : 4 / row_groups;  // warps of a row group
    static constexpr int rows = 16 * row_groups, keys = dim <= 128 ? 64 : 32;
    static constexpr int steps = dim / 16, key_steps = keys / 16;
    static constexpr int keys_per_warp = keys / sharers, cols_per_warp = v_dim / sharers;
    // Of a row in shared memory: 8 rows touch all banks once. For warpgroups it is in panels of 64 columns,
    // as their products read them (device.h).
    static constexpr int stride = warpgroup ? 128 : 2 * dim + 16;
    static constexpr int panel_bytes = keys * stride;
    static constexpr int tile_bytes = warpgroup ? dim / 64 * panel_bytes : keys * stride;
    static constexpr int tiles = latent ? 1 : 2;                               // of keys and of values
    static constexpr int values_at = latent ? 2 * (dim - v_dim) : tile_bytes;  // from the keys' first byte
    // Where 8 columns of a row are: 16 bytes.
    static __device__ int place(int row, int eight) {
        if constexpr (!warpgroup) return row * stride + eight * 16;
        return eight / 8 * panel_bytes + row * stride + ((eight % 8) ^ (row % 8)) * 16;
    }
    // Parts whose sum stands for an f32. One of f16 for the queries does for a third less work in prefill,
    // with errors of 2e-7 (nmse) instead of 1e-8: what is gained where warpgroups round weights like that
    // too.
    static constexpr int query_parts = warpgroup && kind != CacheKind::bf16 ? 1 : 2;
    static constexpr int weight_parts = kind == CacheKind::bf16 ? 2 : 1;  // bf16 alone rounds too coarsely
    static constexpr bool queries_in_registers = dim <= 128;
    static constexpr int query_bytes = queries_in_registers ? 0 : row_groups * steps * query_parts * 512;
    static constexpr int weight_bytes = sharers == 1 ? 0 : row_groups * key_steps * weight_parts * 512;
    static constexpr int most_bytes =
        warpgroup ? 0 : 4 * 16 * 4;  // warpgroups' tiles begin at 1024's multiples
    // Converted tiles. Warpgroups add the values of one while they multiply the keys of the next.
    static constexpr int ready_bytes = (kind != CacheKind::converted ? 0
                                        : warpgroup                  ? 2
                                                                     : 1) *
                                       tiles * tile_bytes;

    // A spare word's worth behind the raw rows: codes are read as aligned words.
    static constexpr int64_t raw_bytes(int64_t cache_stride) { return keys * cache_stride + 16; }
    static constexpr int64_t stage_bytes(int64_t k_stride, int64_t v_stride) {
        if (kind != CacheKind::converted) return tiles * tile_bytes;
        return raw_bytes(k_stride) + (latent ? 0 : raw_bytes(v_stride));
    }
    static constexpr int64_t shared_bytes(int stages, int64_t k_stride, int64_t v_stride) {
        return query_bytes + weight_bytes + most_bytes + ready_bytes +
               stages * stage_bytes(k_stride, v_stride);
    }
};

struct alignas(8) Pair {
    float x, y;
};

// Two values as f16 or bf16 in a word, and what rounding took from them in another.
template <bool bf16>
__device__ inline uint32_t rounded_pair(float x, float y, uint32_t& rest) {
    if constexpr (bf16) {
        const uint32_t w = bf162(x, y);
        rest = bf162(x - bf16_to_float(static_cast<uint16_t>(w)),
                     y - bf16_to_float(static_cast<uint16_t>(w >> 16)));
        return w;
    } else {
        const uint32_t w = half2(x, y);
        rest = half2(x - half_to_float(static_cast<uint16_t>(w)),
                     y - half_to_float(static_cast<uint16_t>(w >> 16)));
        return w;
    }
}

}  // namespace nibble::cuda
