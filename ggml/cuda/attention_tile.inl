// The tile kernel of attention: a block takes 16 to 64 query rows that share a kv head through the context.
// Scores and weighted sums by tensor cores, softmax on the way (Dao, arXiv:2307.08691, algorithm 1).
//
// Four warps: `row_groups` groups of 16 rows, each shared by 4 / row_groups warps, which divide the keys for
// the scores and the columns for the weighted sums. Every score and every sum is made by the same chain of
// products, in the same order, however the work is divided: a row's result does not depend on its company.
//
// Decoding is bound by memory: 64 positions of a 128-wide f16 cache are 32 KiB, read once by 16-byte copies
// that run one tile ahead, against 32 + 20 products (m16n8k16) per warp. Prefill is bound by the tensor cores
// and by the reading of shared memory in equal measure: 196 products and 64 load_matrix4 per warp and tile.

#include "ggml/cuda/attention_convert.inl"
#include "ggml/cuda/attention_products.inl"

template <CacheKind kind, int dim, int row_groups, bool together = false>
struct TileAttention {
    using Shape = TileShape<kind, dim, row_groups, together>;
    static constexpr bool bf16 = kind == CacheKind::bf16;
    static constexpr int score_tiles = Shape::keys_per_warp / 8, value_tiles = Shape::cols_per_warp / 8;
    static constexpr int query_words = Shape::queries_in_registers ? Shape::steps : 1;

    const AttentionArgs& a;
    const QueryTile tile;
    const int64_t index;
    const int kv_head, row_group, sharer;
    std::byte *queries, *weights, *stages, *ready;
    float* most_of;  // each row's largest score, a number of each sharer

    const Reach reach;
    const Walk mine;
    const bool alone;  // the tile's only block: it joins the splits itself
    // The lane's rows: lane / 4 and that plus 8 of the row group.
    int row[2], token[2], head[2], from[2], to[2];
    float factor[2];  // from a product of scaled queries to a score in base 2 (or to the soft cap's argument)
    uint32_t query[query_words][Shape::query_parts][4];
    float sums[value_tiles + 1][4];  // the last: of the weights alone
    float most[2];
    Softmax total[2];
    int pages[Shape::keys / 32];  // of the positions lane, lane + 32, .. of the tile to be fetched next

    __device__ TileAttention(const AttentionArgs& args, const QueryTile& t, int64_t i, int of_head)
        : a(args),
          tile(t),
          index(i),
          kv_head(of_head),
          row_group(warp_index() / Shape::sharers),
          sharer(warp_index() % Shape::sharers),
          reach(args, t, Shape::rows),
          mine(args, reach, block_z()),
          alone(!args.partial || mine.blocks == 1) {
        std::byte* p = shared_memory();
        queries = p;
        weights = p += Shape::query_bytes;
        most_of = reinterpret_cast<float*>(p += Shape::weight_bytes);
        ready = p += Shape::most_bytes;
        stages = p + Shape::ready_bytes;
    }

    // ---- which rows and positions ------------------------------------------------------------------------
    __device__ void place_rows() {
        for (int i = 0; i < 2; ++i) {
            row[i] = tile.row + row_group * 16 + lane() / 4 + 8 * i;
            const int r = row[i] < tile.rows ? row[i] : tile.row, position = reach.position + r / a.group;
            token[i] = tile.first + r / a.group;
            head[i] = kv_head * a.group + r % a.group;
            from[i] = first_attended(a.p, position);
            to[i] = position < reach.last ? position : reach.last;
        }
    }
    __device__ bool on(int i) const { return row[i] < tile.rows; }

    // ---- queries: scaled by a power of two each, as two parts whose sum has twice the bits --------------
    // Values are read once and all at once: one way to memory, which decode would wait for again and again.
    // So no load depends on a condition: where there is no row or column, another is read. Those of the
    // longest heads are too many to be kept.
    __device__ void load_queries() {
        constexpr bool kept = dim <= 256;
        struct alignas(8) Pair {
            float v[2];
        };
        const float* const query_row[2] = {a.q.row(token[0]) + head[0] * a.p.head_dim + lane() % 4 * 2,
                                           a.q.row(token[1]) + head[1] * a.p.head_dim + lane() % 4 * 2};
        const auto there = [&](int s) { return s * 16 < a.p.head_dim; };  // heads are whole steps
        const auto read = [&](int s, int w) {
            const float* const from = query_row[w % 2] + (there(s) ? s * 16 : 0);
            return *reinterpret_cast<const Pair*>(from + w / 2 * 8);
        };
        Pair value[kept ? Shape::steps : 1][4];
#pragma unroll
        for (int s = 0; kept && s < Shape::steps; ++s)
#pragma unroll
            for (int w = 0; w < 4; ++w) value[s][w] = read(s, w);
        const auto at = [&](int s, int w, int c) {
            const Pair pair = kept ? value[s][w] : read(s, w);
            return on(w % 2) && there(s) ? pair.v[c] : 0;
        };
        float scale[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float largest = 0;
#pragma unroll
            for (int s = 0; s < Shape::steps; ++s)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const float v = fabsf(at(s, i + c / 2 * 2, c % 2));
                    largest = v > largest ? v : largest;
                }
            const QueryScale of_row(a.p, largest);
            scale[i] = of_row.scale, factor[i] = of_row.of_product;
        }
#pragma unroll
        for (int s = 0; s < Shape::steps; ++s) {
            Words4 part[2];
#pragma unroll
            for (int w = 0; w < 4; ++w)
                part[0].w[w] =
                    rounded_pair<bf16>(at(s, w, 0) * scale[w % 2], at(s, w, 1) * scale[w % 2], part[1].w[w]);
#pragma unroll
            for (int h = 0; h < Shape::query_parts; ++h)
                if constexpr (Shape::queries_in_registers) {
#pragma unroll
                    for (int w = 0; w < 4; ++w) query[s][h][w] = part[h].w[w];
                } else if (sharer == 0) {
                    *query_at(s, h) = part[h];
                }
        }
    }
    __device__ Words4* query_at(int step, int part) const {
        return reinterpret_cast<Words4*>(queries) +
               ((row_group * Shape::steps + step) * Shape::query_parts + part) * 32 + lane();
    }

    // ---- fetching ----------------------------------------------------------------------------------------
    __device__ void look_up(int t) {
#pragma unroll
        for (int i = 0; i < Shape::keys / 32; ++i) {
            const int64_t position = int64_t{t} * Shape::keys + i * 32 + lane();
            const int32_t* const table = a.page_table.template row<int32_t>(tile.sequence);
            pages[i] = position <= reach.last ? table[position >> a.page_shift] : -1;
        }
    }
    __device__ const std::byte* cache_row(const View& cache, int page, int position) const {
        return cuda::cache_row(a, cache, kv_head, page, position);
    }
    // Rows as they are, 16 bytes a thread. Positions without a page become zeros, so that a weight of zero
    // does not meet an infinity, and columns behind the head's stay zeros.
    __device__ void fetch_rows(int t, std::byte* to_k) {
        if constexpr (Shape::latent) return fetch_latent(t, to_k);
        constexpr int chunks = dim / 8, rows_at_once = Shape::threads / chunks;
        const int chunk = thread_index() % chunks, first = thread_index() / chunks;
        const bool of_k = chunk * 8 < a.p.head_dim, of_v = chunk * 8 < a.p.v_head_dim;
        static_assert(rows_at_once % 8 == 0 || !Shape::warpgroup);
        to_k += Shape::place(first, chunk);
#pragma unroll
        for (int r = 0; r < Shape::keys; r += rows_at_once) {
            const int page = shuffle(pages[r / 32], (first + r) % 32);
            const int position = t * Shape::keys + first + r;
            copy_async16(to_k + r * Shape::stride, cache_row(a.k_cache, page, position) + chunk * 16,
                         page >= 0 && of_k);
            copy_async16(to_k + Shape::values_at + r * Shape::stride,
                         cache_row(a.v_cache, page, position) + chunk * 16, page >= 0 && of_v);
        }
    }
    // The same of rows that do not divide among the threads.
    __device__ void fetch_latent(int t, std::byte* to) {
        constexpr int chunks = dim / 8;
        static_assert(Shape::keys == 32 && 32 * chunks % 128 == 0);
#pragma unroll
        for (int first = 0; first < 32 * chunks; first += 128) {
            const int row = (first + thread_index()) / chunks, chunk = (first + thread_index()) % chunks;
            const int page = shuffle(pages[0], row);
            copy_async16(to + Shape::place(row, chunk),
                         cache_row(a.k_cache, page, t * Shape::keys + row) + chunk * 16, page >= 0);
        }
    }
    // Whole runs of rows that lie in one page, byte by byte as they are.
    __device__ void fetch_raw(int t, std::byte* to_k) {
        const int page_rows = 1 << a.page_shift, run = page_rows < Shape::keys ? page_rows : Shape::keys;
        std::byte* const to_v = to_k + Shape::raw_bytes(a.k_cache.stride);
        for (int r = 0; r < Shape::keys; r += run) {
            const int page = shuffle(r < 32 ? pages[0] : pages[Shape::keys / 32 - 1], r % 32);
            const auto copy = [&](const View& cache, std::byte* to) {
                const auto bytes = static_cast<int>(run * cache.stride);
                const std::byte* const from = cache_row(cache, page, t * Shape::keys + r);
                to += r * cache.stride;
                for (int b = thread_index() * 16; b < bytes; b += Shape::threads * 16)
                    copy_async16(to + b, from + b, page >= 0);
            };
            copy(a.k_cache, to_k);
            if constexpr (!Shape::latent) copy(a.v_cache, to_v);
        }
    }
    __device__ std::byte* stage(int i) const {
        return stages + i * Shape::stage_bytes(a.k_cache.stride, a.v_cache.stride);
    }
    __device__ void fetch(int t, int to_stage) {
        if constexpr (kind == CacheKind::converted)
            fetch_raw(t, stage(to_stage));
        else
            fetch_rows(t, stage(to_stage));
        copy_commit();
    }
    // Columns of converted tiles beyond the head's stay zero for the whole kernel; others are fetched as
    // zeros.
    __device__ void clear_padding(std::byte* converted) {
        for (int half = 0; half < 2 && !Shape::latent; ++half) {
            const int used = half ? a.p.v_head_dim : a.p.head_dim, per_row = (dim - used) / 8;
            for (int i = thread_index(); i < Shape::keys * per_row; i += Shape::threads)
                *reinterpret_cast<Words4*>(converted + half * Shape::values_at +
                                           Shape::place(i / per_row, used / 8 + i % per_row)) = Words4{};
        }
    }

    // ---- one tile
    // ------------------------------------------------------------------------------------------
    // Scores in base 2, soft-capped and masked; their largest per row joins `most`.
    __device__ void finish_scores(int t, float (&s)[score_tiles][4], float (&largest)[2]) const {
        const int first = t * Shape::keys + sharer * Shape::keys_per_warp + lane() % 4 * 2;
        const bool edge = t * Shape::keys < reach.common_from || (t + 1) * Shape::keys - 1 > reach.common_to;
#pragma unroll
        for (int j = 0; j < score_tiles; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) s[j][i] *= factor[i / 2];
        if (a.p.softcap > 0)
#pragma unroll
            for (int j = 0; j < score_tiles; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) s[j][i] = tanhf(s[j][i]) * (a.p.softcap * log2e);
        if (edge)
#pragma unroll
            for (int j = 0; j < score_tiles; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int position = first + j * 8 + i % 2;
                    if (position < from[i / 2] || position > to[i / 2]) s[j][i] = -INFINITY;
                }
        largest[0] = largest[1] = -INFINITY;
#pragma unroll
        for (int j = 0; j < score_tiles; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) largest[i / 2] = fmaxf(s[j][i], largest[i / 2]);  // not a NaN
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int m = 1; m < 4; m *= 2) {
                const float other = shuffle_xor(largest[i], m);
                largest[i] = other > largest[i] ? other : largest[i];
            }
    }
    // The largest scores of the row group's other warps too.
    __device__ void share_largest(float (&largest)[2]) const {
        if (lane() % 4 == 0)
            for (int i = 0; i < 2; ++i) most_of[warp_index() * 16 + lane() / 4 + 8 * i] = largest[i];
        sync_block();
        for (int w = 0; w < Shape::sharers; ++w)
            for (int i = 0; i < 2; ++i) {
                const float other = most_of[(row_group * Shape::sharers + w) * 16 + lane() / 4 + 8 * i];
                largest[i] = other > largest[i] ? other : largest[i];
            }
    }
    __device__ Words2* weight_at(int step, int part, int half) const {
        return reinterpret_cast<Words2*>(weights) +
               (((row_group * Shape::key_steps + step) * Shape::weight_parts + part) * 32 + lane()) * 2 +
               half;
    }
    // Weights as fragments: of the warp's own scores, or of all its row group's through shared memory.
    using Weights = uint32_t[Shape::key_steps][Shape::weight_parts][4];
    __device__ void weigh(const float (&s)[score_tiles][4], const float (&reference)[2], Weights& w) const {
#pragma unroll
        for (int j = 0; j < score_tiles; ++j) {
            const int tile_of = sharer * score_tiles + j;
            Words2 part[2];
#pragma unroll
            for (int i = 0; i < 2; ++i)
                part[0].w[i] = rounded_pair<bf16>(exp2_or_zero(s[j][2 * i] - reference[i]),
                                                  exp2_or_zero(s[j][2 * i + 1] - reference[i]), part[1].w[i]);
#pragma unroll
            for (int p = 0; p < Shape::weight_parts; ++p)
                if constexpr (Shape::sharers == 1) {
                    w[j / 2][p][j % 2 * 2] = part[p].w[0];
                    w[j / 2][p][j % 2 * 2 + 1] = part[p].w[1];
                } else {
                    *weight_at(tile_of / 2, p, tile_of % 2) = part[p];
                }
        }
        if constexpr (Shape::sharers > 1) {
            sync_block();
#pragma unroll
            for (int step = 0; step < Shape::key_steps; ++step)
#pragma unroll
                for (int p = 0; p < Shape::weight_parts; ++p) {
                    const Words4 words = *reinterpret_cast<const Words4*>(weight_at(step, p, 0));
#pragma unroll
                    for (int i = 0; i < 4; ++i) w[step][p][i] = words.w[i];
                }
        }
    }
    __device__ void add_tile(int t, const std::byte* k) {
        // Warps without rows have nothing to add, but meet the others at their barriers.
        if (Shape::sharers == 1 && tile.row + row_group * 16 >= tile.rows) return;
        float s[score_tiles][4] = {}, largest[2], reference[2];
        score(*this, k, s);
        finish_scores(t, s, largest);
        if constexpr (Shape::sharers > 1) share_largest(largest);
        float shrink[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float before = most[i];
            most[i] = largest[i] > before ? largest[i] : before;
            reference[i] = most[i] == -INFINITY ? 0 : most[i];
            shrink[i] = exp2f(before - reference[i]);
        }
        if (shrink[0] != 1 || shrink[1] != 1)  // seldom, once the largest have been met
#pragma unroll
            for (int n = 0; n <= value_tiles; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[n][i] *= shrink[i / 2];
        Weights w;
        weigh(s, reference, w);
        add_values(*this, k + Shape::values_at, w);
    }

    // ---- splits and the result
    // -----------------------------------------------------------------------------
    __device__ void begin_split() {
#pragma unroll
        for (int n = 0; n <= value_tiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[n][i] = 0;
        most[0] = most[1] = -INFINITY;
    }
    // Calls fn(i, column, pair of sums) for the lane's values of row i that exist.
    template <class Fn>
    __device__ void for_values(const Fn& fn) {
#pragma unroll
        for (int n = 0; n < value_tiles; ++n) {
            const int col = sharer * Shape::cols_per_warp + n * 8;
            if (col >= a.p.v_head_dim) continue;
#pragma unroll
            for (int i = 0; i < 2; ++i)
                if (on(i)) fn(i, col + lane() % 4 * 2, &sums[n][2 * i]);
        }
    }
    __device__ void record_split(int split) {
        int64_t record[2];
        for (int i = 0; i < 2; ++i) {
            record[i] = record_of(a, tile, index, Shape::rows, row[i] - tile.row, kv_head) + split;
            if (sharer == 0 && lane() % 4 == 0 && on(i)) {
                a.partial_sums[2 * record[i]] = most[i];
                a.partial_sums[2 * record[i] + 1] = sums[value_tiles][2 * i];
            }
        }
        for_values([&](int i, int col, const float* v) {
            *reinterpret_cast<Pair*>(a.partial + record[i] * a.p.v_head_dim + col) = {v[0], v[1]};
        });
    }
    __device__ void join_split(bool first_split, bool last_split) {
        Join j[2];
        float scale[2];
        for (int i = 0; i < 2; ++i) {
            j[i] = join(total[i], {most[i], sums[value_tiles][2 * i]});
            scale[i] = last_split ? normaliser(total[i], a.sinks, head[i]) : 1;
        }
        for_values([&](int i, int col, const float* v) {
            float* const to_values = a.out.row(token[i]) + head[i] * a.p.v_head_dim + col;
            auto& out = *reinterpret_cast<Pair*>(to_values);
            const Pair before = first_split ? Pair{0, 0} : out;
            out = {joined(before.x, v[0], j[i]) * scale[i], joined(before.y, v[1], j[i]) * scale[i]};
        });
    }
    __device__ void walk(int t, int end) {
        int current = 0, following = t + 1;
        look_up(following);
        for (bool first_split = true;; t = following++) {
            const bool more = following <= end;
            if (a.stages == 2 && more) {
                fetch(following, current ^ 1);
                look_up(following + 1);
                copy_wait<1>();
            } else {
                copy_wait<0>();
            }
            sync_block();
            const std::byte* k = stage(current);
            if constexpr (kind == CacheKind::converted) {
                convert_tile<Shape, dim>(a, k, ready, reach.last + 1 - t * Shape::keys);
                sync_block();
                k = ready;
            }
            add_tile(t, k);
            const int split = split_of(t * Shape::keys);
            if (!more || split_of(following * Shape::keys) != split) {
                if (alone)
                    join_split(first_split, !more);
                else
                    record_split(split);
                first_split = false;
                begin_split();
            }
            if (!more) return;
            sync_block();
            if (a.stages == 2) {
                current ^= 1;
            } else {
                fetch(following, 0);
                look_up(following + 1);
            }
        }
    }
    __device__ void run() {
        if (block_z() >= mine.blocks) return;
        const int start = reach.lowest / Shape::keys, begin = split_begin(mine.first) / Shape::keys;
        const int last = reach.last / Shape::keys, end = split_begin(mine.end) / Shape::keys - 1;
        const int t = begin < start ? start : begin;
        look_up(t);
        fetch(t, 0);
        place_rows();
        if constexpr (kind == CacheKind::converted) clear_padding(ready);
        load_queries();
        begin_split();
        walk(t, end < last ? end : last);
        if (alone || !a.counters) return;
        if (!arrived_last(a, mine, index, kv_head, reinterpret_cast<int*>(most_of))) return;
        for (int r = warp_index(); r < Shape::rows && tile.row + r < tile.rows; r += 4)
            join_row<Shape::v_dim>(a, tile, index, Shape::rows, r);
    }
};

// Blocks that a multiprocessor holds: what registers are dealt out for.
template <int dim, int row_groups>
constexpr int blocks_at_once = dim == 64                       ? (row_groups == 1 ? 4 : 3)
                               : dim == 128 && row_groups == 1 ? 3
                                                               : 2;

// Block x: tiles of query rows, as many as there are blocks apart; y: the kv head; z: runs of splits.
template <CacheKind kind, int dim, int row_groups>
__global__ void __launch_bounds__(128, blocks_at_once<dim, row_groups>) tile_kernel(AttentionArgs a) {
    wait_for_previous();
    using Attention = TileAttention<kind, dim, row_groups>;
    QueryTile tile;
    for (int64_t i = block_x(); find_tile(a, i, Attention::Shape::rows, tile); i += grid_x()) {
        Attention(a, tile, i, block_y()).run();
        sync_block();
    }
}
