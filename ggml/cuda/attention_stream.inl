// Attention of few query rows, as in decoding: keys and values go from memory to registers and from there
// into the products, so warps wait for nothing but memory, and for one another only at the end of a split.
//
// A block's four warps take the groups of 16 positions of a split in turn. A group's keys are the rows of one
// product, S^T = K Q^T, and its values' columns the rows of the other, O^T = V^T P^T; eight query rows are
// the columns of both, as many as a kv head has in most models. A lane reads 16 bytes of a key or value at a
// time: which columns of a head are which of a product is for the lanes to agree on.
//
// A row's weights may exceed 1 by up to 2^8, so its sums are scaled again only where a score is larger than
// its reference by more than that. Every row has its own, so its bits do not depend on the others.

#include "ggml/cuda/attention_brought.inl"

template <CacheKind kind, int dim, int columns>
struct StreamAttention {
    static constexpr bool bf16 = kind == CacheKind::bf16;
    static_assert(kind != CacheKind::converted && dim % 64 == 0 && dim <= 128);
    static constexpr int rows = 8 * columns, warps = 4, group_keys = 16;
    static constexpr int chunks = dim / 32, halves = dim / 64, tiles = dim / 16;
    static constexpr int weight_parts = bf16 ? 2 : 1;  // bf16 alone rounds too coarsely
    static constexpr float headroom = 8;               // of weights, in powers of two
    // Of shared memory: a warp's weights as rows of eight, and what it has of a split.
    static constexpr int weight_bytes = columns * weight_parts * group_keys * 16, value_stride = dim + 4;
    static constexpr int values_at = warps * weight_bytes,
                         softmax_at = values_at + warps * rows * value_stride * 4;
    using Brought = cuda::Brought<bf16, dim, rows, warps>;
    static constexpr int brought_at = softmax_at + warps * rows * static_cast<int>(sizeof(Softmax)),
                         shared_bytes = brought_at + Brought::bytes + static_cast<int>(sizeof(int));
    // What a thread joins: so many columns of one row.
    static constexpr int joined_columns = rows * dim / 128;

    const StreamArgs& a;
    const QueryTile tile;
    const int64_t index;
    const int kv_head;
    const Reach reach;
    const Walk walk;
    const bool alone;  // the tile's only block: it joins the splits itself
    Brought brought;

    // Of the lane's rows of x, 8 n + 2 t and the next: what a product becomes a score by, and where they
    // attend.
    float factor[columns][2];
    int from[columns][2], to[columns][2];
    uint32_t query[columns][2 * chunks][2][2];  // steps of 16 columns, two parts
    Words4 key[2][chunks], value[4][halves];    // keys g and g + 8; values 2t, 2t + 1, 2t + 8 and 2t + 9
    float sums[columns][tiles][4], weight_sums[columns][4], reference[columns][2];
    int held = -1;  // the group whose keys and values are there, or on their way

    __device__ StreamAttention(const StreamArgs& args, const QueryTile& t, int64_t i, int of_head)
        : a(args),
          tile(t),
          index(i),
          kv_head(of_head),
          reach(args, t, rows),
          walk(args, reach, block_z()),
          alone(!args.partial || walk.blocks == 1),
          brought(args, tile, of_head, shared_memory() + brought_at) {}

    // ---- rows --------------------------------------------------------------------------------------------
    __device__ int row_there(int r) const { return tile.row + (tile.row + r < tile.rows ? r : 0); }
    __device__ int token_of(int row) const { return tile.first + row / a.group; }
    __device__ int head_of(int row) const { return kv_head * a.group + row % a.group; }

    // Values scaled by a power of two, as two parts whose sum has twice the bits. Columns behind the head's
    // are zeros.
    __device__ void load_queries() {
        const int g = lane() / 4, t = lane() % 4;
#pragma unroll
        for (int n = 0; n < columns; ++n) {
            const int mine = 8 * n + g;
            const float* const q = brought.query(tile.row + mine < tile.rows ? mine : 0);
            float v[chunks][8];
#pragma unroll
            for (int c = 0; c < chunks; ++c) {
                const bool there = 32 * c + 8 * t < a.p.head_dim;
#pragma unroll
                for (int j = 0; j < 8; j += 4) {
                    float four[4];
                    read_four(q + (there ? 32 * c + 8 * t : 0) + j, four);
                    for (int i = 0; i < 4; ++i) v[c][j + i] = there ? four[i] : 0;
                }
            }
            float largest = 0;
#pragma unroll
            for (int c = 0; c < chunks; ++c)
#pragma unroll
                for (int j = 0; j < 8; ++j) largest = fabsf(v[c][j]) > largest ? fabsf(v[c][j]) : largest;
            const QueryScale of_row(a.p, largest);
#pragma unroll
            for (int c = 0; c < chunks; ++c)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    uint32_t rest;
                    query[n][2 * c + j / 2][0][j % 2] =
                        rounded_pair<bf16>(v[c][2 * j] * of_row.scale, v[c][2 * j + 1] * of_row.scale, rest);
                    query[n][2 * c + j / 2][1][j % 2] = rest;
                }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                factor[n][i] = shuffle(of_row.of_product, (2 * t + i) * 4);
                const int position = reach.position + row_there(8 * n + 2 * t + i) / a.group;
                from[n][i] = first_attended(a.p, position);
                to[n][i] = position < reach.last ? position : reach.last;
            }
        }
    }

    // ---- groups of a split -------------------------------------------------------------------------------
    __device__ int end_of(int split) const {
        const int end = split_begin(split + 1);
        return end <= reach.last ? end : reach.last + 1;
    }
    // The warp's first group that some row attends to; others follow four groups apart.
    __device__ int first_of(int split) const {
        const int begin = split_begin(split);
        const int skipped = reach.lowest > begin ? (reach.lowest - begin) / group_keys : 0;
        return begin + (skipped + ((warp_index() - skipped) & (warps - 1))) * group_keys;
    }
    // The pages of a split's positions: number `lane` from its first on, -1 where there is none.
    __device__ int pages_of(int split) const {
        const int at = (split_begin(split) >> a.page_shift) + lane();
        const bool there = split < walk.end && at <= (end_of(split) - 1) >> a.page_shift;
        return there ? input(a.page_table.template row<int32_t>(tile.sequence) + at) : -1;
    }
    __device__ int page_of(int pages, int split, int position) const {
        return shuffle(pages, (position >> a.page_shift) - (split_begin(split) >> a.page_shift));
    }

    // The last of a group's positions that is in the cache, or the first: that may be anything then, and is
    // not used.
    __device__ int last_cached(int p) const {
        const int last = reach.last - p - (brought.fresh() ? 1 : 0);
        return last < 0 ? 0 : last;
    }
    // No load depends on a condition: where there is no position or column another is read, which is finite.
    __device__ void load_keys(int page, int p) {
        const int g = lane() / 4, t = lane() % 4, last = last_cached(p);
        const std::byte* const row = cache_row(a, a.k_cache, kv_head, page, p);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int k = g + 8 * i;
            const std::byte* const at = row + (k < last ? k : last) * static_cast<int>(a.k_cache.stride);
#pragma unroll
            for (int c = 0; c < chunks; ++c) {
                const int col = 32 * c + 8 * t;
                key[i][c] = *reinterpret_cast<const Words4*>(at + 2 * (col < a.p.head_dim ? col : 0));
            }
        }
    }
    __device__ void load_values(int page, int p) {
        const int g = lane() / 4, t = lane() % 4, last = last_cached(p);
        const std::byte* const row = cache_row(a, a.v_cache, kv_head, page, p);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int k = 2 * t + i % 2 + i / 2 * 8;
            const std::byte* const at = row + (k < last ? k : last) * static_cast<int>(a.v_cache.stride);
#pragma unroll
            for (int h = 0; h < halves; ++h) {
                const int col = 64 * h + 8 * g;
                value[i][h] = *reinterpret_cast<const Words4*>(at + 2 * (col < a.p.v_head_dim ? col : 0));
            }
        }
    }

    __device__ void load(int page, int p) {
        load_keys(page, p);
        load_values(page, p);
        held = p;
    }

    // The key and value that are not in the cache yet, in place of what was read for their position and those
    // behind it.
    __device__ void take_fresh(int p) {
        const int g = lane() / 4, t = lane() % 4, fresh = reach.last - p;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (g + 8 * i < fresh) continue;
#pragma unroll
            for (int c = 0; c < chunks; ++c) {
                const int col = 32 * c + 8 * t;
                key[i][c] =
                    *reinterpret_cast<const Words4*>(brought.row(0) + 2 * (col < a.p.head_dim ? col : 0));
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (2 * t + i % 2 + i / 2 * 8 < fresh) continue;
#pragma unroll
            for (int h = 0; h < halves; ++h) {
                const int col = 64 * h + 8 * g;
                value[i][h] =
                    *reinterpret_cast<const Words4*>(brought.row(1) + 2 * (col < a.p.v_head_dim ? col : 0));
            }
        }
    }

    // ---- one group ---------------------------------------------------------------------------------------
    // Scores in base 2 of keys g and g + 8 by the lane's two rows.
    __device__ void score(float (&s)[columns][4]) const {
#pragma unroll
        for (int n = 0; n < columns; ++n) {
            float d[2][4] = {};
#pragma unroll
            for (int step = 0; step < 2 * chunks; ++step) {
                const int c = step / 2, w = step % 2 * 2;
                const uint32_t x[4] = {key[0][c].w[w], key[1][c].w[w], key[0][c].w[w + 1],
                                       key[1][c].w[w + 1]};
#pragma unroll
                for (int part = 0; part < 2; ++part)
                    multiply<bf16>(d[part], x, query[n][step][part][0], query[n][step][part][1]);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) s[n][i] = (d[0][i] + d[1][i]) * factor[n][i % 2];
        }
    }
    __device__ void mask(int p, bool there, float (&s)[columns][4]) const {
#pragma unroll
        for (int n = 0; n < columns; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (a.p.softcap > 0) s[n][i] = tanhf(s[n][i]) * (a.p.softcap * log2e);
                const int position = p + lane() / 4 + i / 2 * 8;
                if (!there || position < from[n][i % 2] || position > to[n][i % 2]) s[n][i] = -INFINITY;
            }
    }
    // References of the rows that have met a score too large for theirs. Seldom, once the largest are met.
    __device__ void raise_references(const float (&s)[columns][4]) {
        bool larger = false;
#pragma unroll
        for (int n = 0; n < columns; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) larger = larger || s[n][i] > reference[n][i % 2] + headroom;
        if (warp_sum(larger ? 1 : 0) == 0) return;
#pragma unroll
        for (int n = 0; n < columns; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float most = s[n][i + 2] > s[n][i] ? s[n][i + 2] : s[n][i];
                for (int m = 4; m < 32; m *= 2) {
                    const float other = shuffle_xor(most, m);
                    most = other > most ? other : most;
                }
                if (!(most > reference[n][i] + headroom)) continue;
                const float shrink = exp2f(reference[n][i] - most);
                reference[n][i] = most;
#pragma unroll
                for (int j = i; j < 4; j += 2) weight_sums[n][j] *= shrink;
#pragma unroll
                for (int m = 0; m < tiles; ++m)
#pragma unroll
                    for (int j = i; j < 4; j += 2) sums[n][m][j] *= shrink;
            }
    }
    // Weights of the scores, rounded, as the other product wants them: through the warp's shared memory.
    using Weights = uint32_t[columns][weight_parts][2];
    __device__ void weigh(const float (&s)[columns][4], Weights& w) const {
        const int g = lane() / 4, t = lane() % 4;
        std::byte* const mine = shared_memory() + warp_index() * weight_bytes;
        const auto matrix = [&](int n, int part) {
            return mine + (n * weight_parts + part) * group_keys * 16;
        };
        sync_warp();
#pragma unroll
        for (int n = 0; n < columns; ++n) {
            const float base[2] = {reference[n][0] == -INFINITY ? 0 : reference[n][0],
                                   reference[n][1] == -INFINITY ? 0 : reference[n][1]};
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint32_t part[2];
                part[0] = rounded_pair<bf16>(exp2_or_zero(s[n][2 * half] - base[0]),
                                             exp2_or_zero(s[n][2 * half + 1] - base[1]), part[1]);
#pragma unroll
                for (int p = 0; p < weight_parts; ++p)
                    *reinterpret_cast<uint32_t*>(matrix(n, p) + (g + 8 * half) * 16 + t * 4) = part[p];
            }
        }
        sync_warp();
        // Four matrices of eight keys at a time: two of each row of 16.
#pragma unroll
        for (int i = 0; i < columns * weight_parts; i += 2) {
            constexpr int most = columns * weight_parts - 1;
            const int second = i + 1 <= most ? i + 1 : most, m = lane() / 16 == 0 ? i : second;
            uint32_t r[4];
            load_matrix4_transposed(r, mine + (m * group_keys + lane() % 16) * 16);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int at = j == 0 ? i : second;
                w[at / weight_parts][at % weight_parts][0] = r[2 * j];
                w[at / weight_parts][at % weight_parts][1] = r[2 * j + 1];
            }
        }
    }
    // Column 64 h + 8 g + 2 i of the values is row g of tile 4 h + i, the next one is row g + 8.
    __device__ void add_values(const Weights& w) {
        constexpr uint32_t one = one_twice<bf16>, ones[4] = {one, one, one, one};
#pragma unroll
        for (int n = 0; n < columns; ++n)
#pragma unroll
            for (int p = 0; p < weight_parts; ++p)
                multiply<bf16>(weight_sums[n], ones, w[n][p][0], w[n][p][1]);
#pragma unroll
        for (int h = 0; h < halves; ++h)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                uint32_t x[4];
#pragma unroll
                for (int two = 0; two < 2; ++two) {
                    const uint32_t first = value[2 * two][h].w[i], second = value[2 * two + 1][h].w[i];
                    x[2 * two] = byte_perm(first, second, 0x5410);
                    x[2 * two + 1] = byte_perm(first, second, 0x7632);
                }
#pragma unroll
                for (int n = 0; n < columns; ++n)
#pragma unroll
                    for (int p = 0; p < weight_parts; ++p)
                        multiply<bf16>(sums[n][4 * h + i], x, w[n][p][0], w[n][p][1]);
            }
    }
    // Adds the group at p. `next`: the group that is loaded in its place, in `next_page`; -1: none.
    __device__ void add_group(int p, int page, int next, int next_page) {
        if (held != p) load(page, p);
        if (brought.fresh() && reach.last < p + group_keys) take_fresh(p);
        float s[columns][4];
        score(s);
        if (next >= 0) load_keys(next_page, next);
        if (a.p.softcap > 0 || page < 0 || p < reach.common_from || p + group_keys - 1 > reach.common_to)
            mask(p, page >= 0, s);
        raise_references(s);
        Weights w;
        weigh(s, w);
        add_values(w);
        if (next >= 0) load_values(next_page, next);
        held = next;
    }

    // ---- splits and the result ---------------------------------------------------------------------------
    __device__ void begin_split() {
#pragma unroll
        for (int n = 0; n < columns; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) weight_sums[n][i] = 0;
#pragma unroll
            for (int m = 0; m < tiles; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[n][m][i] = 0;
            reference[n][0] = reference[n][1] = -INFINITY;
        }
    }
    __device__ float* values_of(int warp, int row) const {
        return reinterpret_cast<float*>(shared_memory() + values_at) + (warp * rows + row) * value_stride;
    }
    __device__ Softmax* softmax_of(int warp, int row) const {
        return reinterpret_cast<Softmax*>(shared_memory() + softmax_at) + warp * rows + row;
    }
    // What the warp has of the split, into shared memory.
    __device__ void leave_split() const {
        const int g = lane() / 4, t = lane() % 4;
#pragma unroll
        for (int n = 0; n < columns; ++n)
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int row = 8 * n + 2 * t + j;
                if (g == 0) *softmax_of(warp_index(), row) = {reference[n][j], weight_sums[n][j]};
#pragma unroll
                for (int m = 0; m < tiles; m += 2) {
                    const float v[4] = {sums[n][m][j], sums[n][m][2 + j], sums[n][m + 1][j],
                                        sums[n][m + 1][2 + j]};
                    *reinterpret_cast<Words4*>(values_of(warp_index(), row) + 64 * (m / 4) + 8 * g +
                                               m % 4 * 2) = words_of(v);
                }
            }
    }
    // The thread's share of a split or of all: columns of one row.
    struct Share {
        Softmax softmax;
        float value[joined_columns] = {};
    };
    __device__ void add_to(Share& total, const Softmax& next, const float* values) const {
        const Join j = join(total.softmax, next);
#pragma unroll
        for (int i = 0; i < joined_columns; ++i) total.value[i] = joined(total.value[i], values[i], j);
    }
    // wait() returns once the launches before have left queries, keys and values. Which pages and slots these
    // are in is among the inputs of a step, so it is known earlier.
    template <class Wait>
    __device__ void run(const Wait& wait) {
        constexpr int per_row = dim / joined_columns;  // threads
        if (block_z() >= walk.blocks) return;
        int split = walk.first;
        const int row = thread_index() / per_row, col = thread_index() % per_row * joined_columns;
        const bool there = tile.row + row < tile.rows;
        int pages = pages_of(split);
        brought.find_slot(reach, block_z() + 1 == walk.blocks);
        wait();
        auto asked = brought.ask();
        if (const int p = first_of(split); p < end_of(split)) load(page_of(pages, split, p), p);
        brought.take(asked);
        load_queries();
        Share total;
        for (; split < walk.end; ++split) {
            const int following = split + 1, next_pages = pages_of(following);
            const int end = end_of(split);
            begin_split();
            for (int p = first_of(split); p < end; p += warps * group_keys) {
                int next = p + warps * group_keys, next_page = -1;
                if (next < end) {
                    next_page = page_of(pages, split, next);
                } else {
                    next = following < walk.end ? first_of(following) : -1;
                    if (next >= 0 && next < end_of(following))
                        next_page = page_of(next_pages, following, next);
                    else
                        next = -1;
                }
                add_group(p, page_of(pages, split, p), next, next_page);
            }
            pages = next_pages;
            leave_split();
            sync_block();
            Share joint;
            for (int w = 0; w < warps; ++w) add_to(joint, *softmax_of(w, row), values_of(w, row) + col);
            sync_block();
            if (alone) {
                add_to(total, joint.softmax, joint.value);
            } else if (there) {
                const int64_t record = record_of(a, tile, index, rows, row, kv_head) + split;
                if (col == 0) {
                    a.partial_sums[2 * record] = joint.softmax.most;
                    a.partial_sums[2 * record + 1] = joint.softmax.sum;
                }
                store(a.partial + record * a.p.v_head_dim + col, joint, col, 1);
            }
        }
        brought.put();
        if (alone) {
            if (!there) return;
            const int r = tile.row + row, head = head_of(r);
            store(a.out.row(token_of(r)) + head * a.p.v_head_dim + col, total, col,
                  normaliser(total.softmax, a.sinks, head));
        } else if (a.counters &&
                   arrived_last(a, walk, index, kv_head,
                                reinterpret_cast<int*>(shared_memory() + shared_bytes - sizeof(int)))) {
            for (int r = warp_index(); r < rows && tile.row + r < tile.rows; r += warps)
                join_row<dim>(a, tile, index, rows, r);
        }
    }
    __device__ void store(float* out, const Share& share, int col, float scale) const {
#pragma unroll
        for (int i = 0; i < joined_columns; ++i)
            if (col + i < a.p.v_head_dim) out[i] = share.value[i] * scale;
    }
};

// Blocks that a multiprocessor holds: what registers are dealt out for. Two have 32 to 64 KiB on their way.
template <int dim, int columns>
constexpr int stream_blocks = dim == 64 ? (columns == 1 ? 4 : 3) : 2;

// Block x: tiles of query rows, as many as there are blocks apart; y: the kv head; z: runs of splits.
template <CacheKind kind, int dim, int columns>
__global__ void __launch_bounds__(128, stream_blocks<dim, columns>)
    stream_kernel(const __grid_constant__ StreamArgs a) {
    using Attention = StreamAttention<kind, dim, columns>;
    QueryTile tile;
    bool waited = false;
    const auto wait = [&] {
        if (!waited) wait_for_previous();
        waited = true;
    };
    for (int64_t i = block_x(); find_tile(a, i, Attention::rows, tile); i += grid_x()) {
        Attention(a, tile, i, block_y()).run(wait);
        sync_block();
    }
    wait();
}
