// Attention for many rows on cards of generation 9.0: two warpgroups take 128 query rows through the context.
// While a tile's values are added, the scores of the next are weighed (Shah et al., arXiv:2407.08608).
//
// A multiprocessor's tensor cores need 1024 clocks for the 64 x 64 scores that each of the two warpgroups
// makes of a tile of keys and for their weighted values; all else has to fit beside that. So a block goes
// through its whole context without leaving its registers (no splits: what a row gets depends on its own
// positions alone), a score becomes a weight in five instructions, and where no row's reach ends and there is
// no soft cap, nothing branches between the products. The largest scores are met early as a rule, and weights
// may exceed 1 by a factor that f16 has room for, so that sums are hardly ever scaled again.

template <CacheKind kind, int dim>
struct WarpgroupAttention : TileAttention<kind, dim, 8, true> {
    using Base = TileAttention<kind, dim, 8, true>;
    using Base::a, Base::reach, Base::factor, Base::sums, Base::most, Base::from, Base::to;
    using Base::score_tiles, Base::value_tiles;
    using typename Base::Shape;
    using typename Base::Weights;

    static constexpr bool converted = kind == CacheKind::converted;
    static constexpr int ahead = converted ? 1 : 2;  // tiles that are on their way while one is multiplied
    // While the first warpgroup begins a tile, the second may still read the values of the one before the
    // last.
    static constexpr int stages_held = converted ? 2 : ahead + 3;
    static constexpr float headroom = 8;  // of the largest weight, in powers of two

    float sum[2] = {0, 0};       // of the weights of the lane's columns
    float unit[2];               // of the scores, in powers of two
    Weights w;                   // of the tile whose values are added next
    int first, end;              // tiles
    int inner_first, inner_end;  // those that every row attends to all of: the first and the one behind them
    bool whole_pages;            // 32 keys side by side are of one page

    // What all lanes know is taken from one of them, so that the compiler knows it too and keeps it once.
    __device__ WarpgroupAttention(const AttentionArgs& args, const QueryTile& t, int64_t i, int kv_head)
        : Base(args, t, i, kv_head),
          first(shuffle(reach.lowest / Shape::keys, 0)),
          end(shuffle(reach.last / Shape::keys, 0)),
          inner_first(shuffle((reach.common_from + Shape::keys - 1) / Shape::keys, 0)),
          inner_end(shuffle((reach.common_to + 1) / Shape::keys, 0)),
          whole_pages(args.page_shift >= 5) {}

    // ---- keys and values ----------------------------------------------------------------------------
    // The n-th tile, as it is multiplied.
    __device__ const std::byte* keys(int n) const {
        if constexpr (converted) return this->ready + n % 2 * (Shape::tiles * Shape::tile_bytes);
        return this->stage(n % stages_held);
    }
    // Where pages are of 32 keys or more: the pages of a tile's halves.
    __device__ void look_up_halves(int t) {
        const int32_t* const table = a.page_table.template row<int32_t>(this->tile.sequence);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int position = t * Shape::keys + i * 32;
            const int page = table[(position <= reach.last ? position : reach.last) >> a.page_shift];
            this->pages[i] = position <= reach.last ? page : -1;
        }
    }
    // fetch_rows() from such pages, without a branch: behind the last tile nothing is read.
    __device__ void fetch_halves(int t, std::byte* to_k) {
        constexpr int chunks = dim / 8, rows_at_once = Shape::threads / chunks;
        const int chunk = thread_index() % chunks, row = thread_index() / chunks;
        const bool of_k = chunk * 8 < a.p.head_dim, of_v = chunk * 8 < a.p.v_head_dim;
        to_k += Shape::place(row, chunk);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int page = this->pages[half], position = t * Shape::keys + half * 32 + row;
            const std::byte* k = this->cache_row(a.k_cache, page, position) + chunk * 16;
            const std::byte* v = this->cache_row(a.v_cache, page, position) + chunk * 16;
#pragma unroll
            for (int r = 0; r < 32; r += rows_at_once) {
                const bool there = page >= 0 && position + r <= reach.last;
                std::byte* const to_row = to_k + (half * 32 + r) * Shape::stride;
                copy_async16(to_row, k, there && of_k);
                copy_async16(to_row + Shape::values_at, v, there && of_v);
                k += rows_at_once * a.k_cache.stride;
                v += rows_at_once * a.v_cache.stride;
            }
        }
    }
    // What is on its way is counted in groups, so there is one even where no tile is left. halves: without a
    // branch, from pages that have been looked up so.
    template <bool halves>
    __device__ void request(int n) {
        if (!halves && first + n > end) return copy_commit();
        std::byte* const to = this->stage(n % stages_held);
        if constexpr (converted)
            this->fetch_raw(first + n, to);
        else if (halves || whole_pages)
            fetch_halves(first + n, to);
        else
            this->fetch_rows(first + n, to);
        copy_commit();
        if (halves || whole_pages)
            look_up_halves(first + n + 1);
        else
            this->look_up(first + n + 1);
    }
    // The warpgroups take turns: while one's products run, the other makes weights of its scores. The second
    // is half a tile behind: it meets the first at one more barrier before its tiles, and the first meets it
    // at one more behind its own. (Where tiles are converted both do the same at the same time.)
    static constexpr bool turns = !converted;
    __device__ bool behind() const { return warp_index() >= 4; }
    // The other's turn. From then on the next tile is there.
    __device__ void await_next() {
        copy_wait<ahead - 1>();
        publish_shared();
        sync_block();
    }
    // Until the n-th tile is there and converted; called where no product runs.
    __device__ void convert_next(int n) {
        copy_wait<ahead - 1>();
        sync_block();
        request<false>(n + ahead);
        std::byte* const to_tile = this->ready + n % 2 * (Shape::tiles * Shape::tile_bytes);
        convert_tile<Shape, dim>(a, this->stage(n % stages_held), to_tile,
                                 reach.last + 1 - (first + n) * Shape::keys);
        publish_shared();
        sync_block();
    }

    // ---- one tile -----------------------------------------------------------------------------------
    // Scores with a soft cap come out in powers of two.
    __device__ void cap(float (&s)[score_tiles][4]) const {
        const float most_capped = a.p.softcap * log2e;
#pragma unroll
        for (int j = 0; j < score_tiles; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {  // tanh x = 1 - 2 / (e^2x + 1)
                const float grown = exp2_or_zero(s[j][i] * factor[i / 2] * (2 * log2e));
                s[j][i] = fused(reciprocal(grown + 1), -2 * most_capped, most_capped);
            }
    }
    __device__ void mask(int t, float (&s)[score_tiles][4]) const {
        const int column = t * Shape::keys + lane() % 4 * 2;
#pragma unroll
        for (int j = 0; j < score_tiles; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int position = column + j * 8 + i % 2;
                if (position < from[i / 2] || position > to[i / 2]) s[j][i] = -INFINITY;
            }
    }
    // Scores become weights; `shrink`: what earlier sums are multiplied with.
    __device__ void weigh(float (&s)[score_tiles][4], float (&shrink)[2]) {
        float largest[2] = {-INFINITY, -INFINITY}, less[2];
#pragma unroll
        for (int j = 0; j < score_tiles; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) largest[i / 2] = fmaxf(s[j][i], largest[i / 2]);  // not a NaN
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int m = 1; m < 4; m *= 2) largest[i] = fmaxf(shuffle_xor(largest[i], m), largest[i]);
            const float next = largest[i] * unit[i];
            const bool moves = next > most[i] + headroom;
            shrink[i] = moves ? exp2_or_zero(most[i] - next) : 1;
            most[i] = moves ? next : most[i];
            less[i] = most[i] == -INFINITY ? 0 : -most[i];
            sum[i] *= shrink[i];
        }
#pragma unroll
        for (int j = 0; j < score_tiles; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float* const pair = &s[j][2 * i];
#pragma unroll
                for (int c = 0; c < 2; ++c) pair[c] = exp2_or_zero(fused(pair[c], unit[i], less[i]));
                sum[i] += pair[0] + pair[1];
            }
    }
    __device__ void round(const float (&s)[score_tiles][4]) {
#pragma unroll
        for (int j = 0; j < score_tiles; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                uint32_t part[2];
                part[0] = rounded_pair<Base::bf16>(s[j][2 * i], s[j][2 * i + 1], part[1]);
#pragma unroll
                for (int p = 0; p < Shape::weight_parts; ++p) w[j / 2][p][j % 2 * 2 + i] = part[p];
            }
    }
    // Weighs the n-th tile and, unless it is the first, adds the values of the one before. plain: a tile
    // without masks or a soft cap, of whole pages, for which both go on side by side, without a branch.
    template <bool plain, bool is_first>
    __device__ void add_tile(int n) {
        if constexpr (converted)
            convert_next(n);
        else if constexpr (!plain)
            request<false>(n + ahead);
        float s[score_tiles][4] = {}, shrink[2];
        score_together(*this, keys(n), s);
        if constexpr (!is_first) add_values_together(*this, keys(n - 1) + Shape::values_at, w);
        if constexpr (plain && !converted) request<true>(n + ahead);
        if constexpr (!converted) await_next();
        warpgroup_wait<plain ? 1 : 0>();
        warpgroup_results<score_tiles>(s);
        if constexpr (!plain) {
            if (a.p.softcap > 0) cap(s);
            if (!inner(n)) mask(first + n, s);
        }
        weigh(s, shrink);
        warpgroup_results<score_tiles>(s);
        warpgroup_after(sum[0] + sum[1]);
        if constexpr (turns) sync_block();
        warpgroup_wait<0>();
        warpgroup_results<score_tiles>(s);  // not rounded before: products read the last weights until now
        warpgroup_results<value_tiles>(sums);
        if (shrink[0] != 1 || shrink[1] != 1)
#pragma unroll
            for (int v = 0; v < value_tiles; ++v)
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[v][i] *= shrink[i / 2];
        round(s);
    }
    // Whether every row attends to all of the n-th tile.
    __device__ bool inner(int n) const { return first + n >= inner_first && first + n < inner_end; }

    // ---- the result ---------------------------------------------------------------------------------
    __device__ void finish(int n) {
        add_values_together(*this, keys(n) + Shape::values_at, w);
        if (turns && !behind()) sync_block();
        float scale[2];
        for (int i = 0; i < 2; ++i) {
            for (int m = 1; m < 4; m *= 2) sum[i] += shuffle_xor(sum[i], m);
            scale[i] = normaliser({most[i], sum[i]}, a.sinks, this->head[i]);
        }
        warpgroup_wait<0>();
        warpgroup_results<value_tiles>(sums);
        this->for_values([&](int i, int col, const float* v) {
            float* const row = a.out.row(this->token[i]) + this->head[i] * a.p.v_head_dim;
            *reinterpret_cast<Pair*>(row + col) = {v[0] * scale[i], v[1] * scale[i]};
        });
    }
    __device__ void run() {
        if (whole_pages)
            look_up_halves(first);
        else
            this->look_up(first);
        for (int n = 0; n < ahead; ++n) request<false>(n);
        this->place_rows();
        for (int i = 0; converted && i < 2; ++i)
            this->clear_padding(this->ready + i * (Shape::tiles * Shape::tile_bytes));
        this->load_queries();
        this->begin_split();
        for (int i = 0; i < 2; ++i) unit[i] = a.p.softcap > 0 ? 1 : factor[i];
        const bool plain = !(a.p.softcap > 0) && (converted || whole_pages);
        if constexpr (!converted) await_next();
        if (turns && behind()) sync_block();
        add_tile<false, true>(0);
        int n = 1;
        for (; first + n <= end; ++n)
            if (plain && inner(n))
                add_tile<true, false>(n);
            else
                add_tile<false, false>(n);
        finish(n - 1);
        copy_wait<0>();
    }
};

// Block x: tiles of query rows with each kv head: those of the longest contexts first, so that the blocks
// that end last are short.
template <CacheKind kind, int dim>
__global__ void __launch_bounds__(256, dim == 64 && kind != CacheKind::bf16 ? 2 : 1)
    warpgroup_kernel(AttentionArgs a) {
    if (!has_warpgroups()) return;
    wait_for_previous();
    using Attention = WarpgroupAttention<kind, dim>;
    const auto heads = static_cast<uint32_t>(a.p.n_kv_heads), block = static_cast<uint32_t>(block_x());
    QueryTile tile;
    for (int64_t i = block / heads; find_tile(a, i, Attention::Shape::rows, tile);
         i += static_cast<uint32_t>(grid_x()) / heads) {
        Attention(a, tile, i, static_cast<int>(block % heads)).run();
        sync_block();
    }
}
