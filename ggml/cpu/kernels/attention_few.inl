// Attention of few rows, straight from the cache where its type allows: what is read is converted on its way
// to the sums. Of a step: all keys, the softmax of all rows, all values; chunk by chunk, of each all heads.

// Up to so many rows of a kv head it is cheaper to convert a chunk for every few_rows of them than to store
// what was converted.
constexpr int64_t few_rows = stream_rows, direct_rows = 8;

// Calls fn.operator()<R>(rows [first, first + R) of `t`) for `n` of its rows, R <= few_rows at a time: as
// often as it takes, with as many rows each time as the other times, or one more.
template <class P, class Fn>
inline void few_at_a_time(const AttentionTile<P>& t, int64_t first, int64_t n, Fn fn) {
    for (int64_t times = (n + few_rows - 1) / few_rows; times > 0; --times) {
        const AttentionTile<P> part = t.part(first, times == 1 ? n : (n + times - 1) / times);
        with_rows<few_rows>(part.rows, [&]<int R>() { fn.template operator()<R>(part); });
        first += part.rows;
        n -= part.rows;
    }
}

// The pieces of a step, a chunk of a head each, in the order in which few rows read them: chunk by chunk, and
// of each all heads of the block. Memory is asked for where what is read `cache_ahead` later lies: behind a
// head's 4 KiB or so there may be another thread's head, behind a page that of another sequence, and the
// processor does not foresee more.
constexpr int64_t cache_ahead = 8192;
class Pieces {
  public:
    Pieces(const AttentionBlock& b, const Tensor& cache, const AttentionStep& step, const AttentionStep& next)
        : step_(&step), next_(&next), heads_(b.kv_heads), page_(b.params->page_size), stride_(cache.stride) {
        const int64_t bytes = (page_ < chunk_keys ? page_ : chunk_keys) * stride_;
        far_ = (cache_ahead + bytes - 1) / bytes;
    }
    // Bytes from the piece of head h of chunk i to the one that is asked for meanwhile; 0: there is none.
    int64_t ahead(int64_t i, int64_t h) const {
        const int64_t n = h + far_, later = i + n / heads_;
        const AttentionStep& s = later < step_->count ? *step_ : *next_;
        const int64_t at = later < step_->count ? later : later - step_->count;
        if (at >= s.count || s.chunks[at].row < 0) return 0;
        return (s.chunks[at].row + n % heads_ * page_ - step_->chunks[i].row - h * page_) * stride_;
    }

  private:
    const AttentionStep *step_, *next_;
    int64_t heads_, page_, stride_, far_;
};

// sum[r][v] += weight(r) * value(v). Each is read once; those of which there are fewer stay in registers.
template <class P, int R, int V, class Weight, class Value>
[[gnu::always_inline]] inline void add_products(F (&sum)[R][V], Weight weight, Value value) {
    typename P::Vector kept[R < V ? R : V];
    if constexpr (R < V) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) kept[r] = weight(r);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            const typename P::Vector x = value(v);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) sum[r][v] = P::multiply_add(kept[r], x, sum[r][v]);
        }
    } else {
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) kept[v] = value(v);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const typename P::Vector w = weight(r);
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) sum[r][v] = P::multiply_add(w, kept[v], sum[r][v]);
        }
    }
}

// s[r][j .. j + V vectors) = q[r] . key, from keys in tiles; the same order of additions as fma_block.
template <class P, class Row, int R, int V>
inline void score_vectors(const std::byte* tiles, int64_t head_dim, const typename P::Number* q, int64_t j,
                          int64_t ahead, float* s) {
    const int64_t units = head_dim / P::size;
    F acc[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) acc[r][v] = zero();
    const auto multiply = [&](int64_t i, const typename P::Vector(&x)[V]) __attribute__((always_inline)) {
        const auto weight = [&](int r) __attribute__((always_inline)) {
            return P::broadcast(q + r * units + i);
        };
        const auto key = [&](int v) __attribute__((always_inline)) { return x[v]; };
        add_products<P>(acc, weight, key);
    };
    each_column<P, Row, V, true>(tiles, head_dim, j, ahead, multiply);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) store(s + r * step_stride + j + v * lanes, acc[r][v]);
}

// Scores s[r][0 .. n) of a tile's R rows with keys [0, n) of a chunk; what lies `ahead` is asked for.
template <int R, class P>
inline void score_keys(const AttentionBlock& b, const AttentionTile<P>& t, int64_t cache_row, int64_t n,
                       int64_t ahead, float* s) {
    const int64_t head_dim = b.params->head_dim;
    if (b.k_cache.layout != Layout::key_tiles) {
        load_keys(b.k_cache, head_dim, t, cache_row, n);
        return t.multiply->block(R, chunk_keys, t.q, t.units, t.keys, chunk_keys, t.units, s, step_stride,
                                 true);
    }
    const auto* tiles = b.k_cache.row<std::byte>(cache_row);
    visit_row(b.k_cache.type, [&]<class Row>() {
        each_two_vectors(
            n, [&]<int V>(int64_t j) { score_vectors<P, Row, R, V>(tiles, head_dim, t.q, j, ahead, s); });
    });
}

// Vectors of values at once: a sum waits for its last addition, so few rows want many. But more sums than a
// tile of products has leave no registers for what is multiplied, and numbers that come out of bytes and are
// joined want some as well.
template <class P, class Row, int R>
constexpr int value_vecs = (P::size > 1 && Row::parts > 1 ? R + 2 : R) * 4 <= tile_rows* tile_vecs ? 4 : 2;

// o[r][i .. i + V vectors) += sum over n values of weights[r][j] * value[j].
template <class P, class Row, int R, int V>
inline void add_values(const std::byte* values, int64_t stride, int64_t n, int64_t ahead,
                       const typename P::Number* weights, int64_t i, float* o, int64_t ldo) {
    F acc[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) acc[r][v] = load(o + r * ldo + i + v * lanes);
    for (int64_t j = 0; j < n; j += P::size, values += P::size * stride, ++weights) {
#pragma GCC unroll 2
        for (int s = 0; s < P::size; ++s)
            prefetch_lines<V * lanes * Row::bytes / Row::block, second_level>(
                values + s * stride + i / Row::block * Row::bytes + ahead);
        const auto weight = [&](int r) __attribute__((always_inline)) {
            return P::broadcast(weights + r * step_stride);
        };
        const auto value = [&](int v) __attribute__((always_inline)) {
            return P::template value<Row, V>(values, stride, n - j, i, v);
        };
        add_products<P>(acc, weight, value);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) store(o + r * ldo + i + v * lanes, acc[r][v]);
}

// All R rows of a tile: values [r.lo, r.hi) of a chunk, whose first is given; the weights are the chunk's,
// too. A value has `cols` numbers, whole vectors of them; what lies behind them in memory is not the chunk's
// to read.
template <class Row, int R, class P>
inline void add_rows(const AttentionTile<P>& t, const std::byte* values, int64_t stride, int64_t cols,
                     int64_t ahead, const typename P::Number* weights, ChunkRange<P> r) {
    values += r.lo * stride;
    weights += r.lo / P::size;
    int64_t i = 0;
    constexpr int V = value_vecs<P, Row, R>;
    for (; i + V * lanes <= cols; i += V * lanes)
        add_values<P, Row, R, V>(values, stride, r.hi - r.lo, ahead, weights, i, t.o, t.v_cols);
    for (; i < cols; i += lanes)
        add_values<P, Row, R, 1>(values, stride, r.hi - r.lo, ahead, weights, i, t.o, t.v_cols);
}
template <int R, class P>
inline void add_chunk(const AttentionBlock& b, const AttentionTile<P>& t, int64_t cache_row,
                      const AttentionStep::Chunk& c, ChunkRange<P> r, int64_t ahead) {
    const auto* weights = t.weights(0) + c.at / P::size;
    const auto direct = [&]<class Row>() {
        add_rows<Row, R>(t, b.v_cache.row<std::byte>(cache_row), b.v_cache.stride, b.params->v_head_dim,
                         ahead, weights, r);
    };
    if (b.params->v_head_dim % lanes == 0 && visit_row(b.v_cache.type, direct)) return;
    decode_values(b, t, cache_row, r.hi);
    t.multiply->block(R, t.v_cols, weights + r.lo / P::size, step_stride,
                      t.values + r.lo / P::size * t.v_cols, t.v_cols, r.units(), t.o, t.v_cols, false);
}

// A few tokens' heads against the keys of a step, straight from the cache where its type allows.
template <class P>
inline void attend_few(const AttentionBlock& b, const AttentionTile<P>& t, const AttentionStep& step,
                       const AttentionStep& next) {
    const Pieces keys(b, b.k_cache, step, next), values(b, b.v_cache, step, next);
    const int64_t page = b.params->page_size, group = b.params->n_heads / b.params->n_kv_heads,
                  rows = b.n_tokens * group;
    for (int64_t i = 0; i < step.count; ++i) {
        const AttentionStep::Chunk& c = step.chunks[i];
        if (c.row < 0) {
            leave_out(t, c);
            continue;
        }
        for (int64_t h = 0; h < b.kv_heads; ++h) {
            const int64_t ahead = keys.ahead(i, h);
            few_at_a_time(t, h * rows, rows, [&]<int R>(const AttentionTile<P>& part) {
                score_keys<R>(b, part, c.row + h * page, c.len, ahead, part.scores + c.at);
            });
        }
    }
    softmax_rows(b, t, step);
    for (int64_t i = 0; i < step.count; ++i) {
        const AttentionStep::Chunk& c = step.chunks[i];
        if (c.row < 0) continue;
        for (int64_t h = 0; h < b.kv_heads; ++h) {
            const int64_t ahead = values.ahead(i, h);
            SeenKeys{&b, &step}.each<P>(c, [&](int64_t token, int64_t n, ChunkRange<P> range) {
                few_at_a_time(t, h * rows + token * group, n * group,
                              [&]<int R>(const AttentionTile<P>& part) {
                                  add_chunk<R>(b, part, c.row + h * page, c, range, ahead);
                              });
            });
        }
    }
}
