// Attention of a tile of query rows over pages: online softmax within a split, splits joined in order.
// A row's operations depend only on its position and the window: masks, tiles and threads never change them.

// What multiplies whole chunks finds weights of zero outside [begin, end) of a row.
template <class P>
inline void weigh_nothing(float* s, int64_t begin, int64_t end) {
    if constexpr (P::depth > 1) {
        for (int64_t j = 0; j < begin; j += lanes) P::store_weights(s, j, zero());
        for (int64_t j = end; j < step_stride; j += lanes) P::store_weights(s, j, zero());
    }
}

// Keys [from, to) of a step.
struct KeyRange {
    int64_t from, to;
};

// Lanes [lo, hi) of x, -infinity in the others.
inline F within(F x, int64_t lo, int64_t hi) {
    struct Edge {
        int32_t before[2 * lanes], behind[2 * lanes];
    };
    static constexpr Edge edge = [] {
        Edge e{};
        for (int i = 0; i < lanes; ++i) e.before[i] = e.behind[lanes + i] = -1;
        return e;
    }();
    lo = lo < 0 ? 0 : lo > lanes ? lanes : lo;
    hi = hi < 0 ? 0 : hi > lanes ? lanes : hi;
    const I outside = or_i(load_i(edge.before + lanes - lo), load_i(edge.behind + lanes - hi));
    const I inside = xor_i(outside, set1_i(-1));
    return as_float(or_i(and_i(as_int(x), inside), and_i(as_int(set1(-infinity)), outside)));
}

// The softmax of R rows over their scores of a step, which become weights; of each row the keys in its range
// count. `gaps`: some of them may have no page, and then perhaps all of those that count; for one row at a
// time. Scores, and so m, count in powers of two: queries are multiplied by log2(e) as well as by the scale.
// Rows side by side fill the time that each of them would wait for its own maximum and powers.
template <class P, int R>
inline void softmax_step(const AttentionParams& p, bool gaps, float* scores, const KeyRange* range, float* m,
                         float* l, float* o, int64_t v_cols) {
    int64_t begin = step_keys, end = 0;
    float* s[R];
    F largest[R], total[R];
    float new_m[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        s[r] = scores + r * step_stride;
        largest[r] = set1(m[r]);
        total[r] = zero();
        const int64_t first = range[r].from / lanes * lanes, last = (range[r].to + lanes - 1) / lanes * lanes;
        begin = first < begin ? first : begin;
        end = last > end ? last : end;
        if (p.softcap > 0) {
            const F cap = set1(p.softcap * log2_e);
            for (int64_t j = first; j < last; j += lanes) store(s[r] + j, cap * tanh(load(s[r] + j) / cap));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        const auto limit = [&](int64_t j) {
            store(s[r] + j, within(load(s[r] + j), range[r].from - j, range[r].to - j));
        };
        int64_t j = begin;
        for (; j < range[r].from; j += lanes) limit(j);
        const int64_t partial = range[r].to / lanes * lanes;
        for (j = partial > j ? partial : j; j < end; j += lanes) limit(j);
    }
    for (int64_t j = begin; j < end; j += lanes)
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) largest[r] = max(largest[r], load(s[r] + j));
    bool shrinks = false;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        new_m[r] = max_of(largest[r]);
        shrinks |= new_m[r] != m[r];
    }
    if (R == 1 && gaps && new_m[0] == -infinity) return;  // no key has a page: there are no values to weigh
    for (int64_t j = begin; j < end; j += lanes)
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const F e = exp2(load(s[r] + j) - set1(new_m[r]));
            P::store_weights(s[r], j, e);
            total[r] = total[r] + e;
        }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) weigh_nothing<P>(s[r], begin, end);
    // One question for all: few rows shrink late in a context, and most of them early in it.
    if (!shrinks) {
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) l[r] += sum(total[r]);
        return;
    }
    alignas(64) float factor[R][lanes];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) store(factor[r], exp2(set1(m[r]) - set1(new_m[r])));
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r, o += v_cols) {
        l[r] = l[r] * factor[r][0] + sum(total[r]);
        m[r] = new_m[r];
        const F shrink = set1(factor[r][0]);
        for (int64_t i = 0; i < v_cols; i += lanes) store(o + i, load(o + i) * shrink);
    }
}

// total (m, l, o) becomes the join of itself and one split's result; a split without keys changes nothing.
inline void join(float& tm, float& tl, float* to, float m, float l, const float* o, int64_t v_cols) {
    if (l == 0) return;
    alignas(64) float factor[2][lanes];
    const float new_m = tm > m ? tm : m;
    store(factor[0], exp2(set1(tm) - set1(new_m)));
    store(factor[1], exp2(set1(m) - set1(new_m)));
    const F a = set1(factor[0][0]), c = set1(factor[1][0]);
    tl = tl * factor[0][0] + l * factor[1][0];
    tm = new_m;
    for (int64_t i = 0; i < v_cols; i += lanes) store(to + i, load(to + i) * a + load(o + i) * c);
}

// Divides by the denominator, which a sink enlarges. A row that saw no key gives zeros.
inline void write_row(const AttentionParams& p, float m, float l, float* o, const float* sink, float* out) {
    float factor = 1;
    if (sink) {
        alignas(64) float e[2][lanes];
        const float s = *sink * log2_e, new_m = s > m ? s : m;
        store(e[0], exp2(set1(m) - set1(new_m)));
        store(e[1], exp2(set1(s) - set1(new_m)));
        factor = e[0][0];
        l = l * factor + e[1][0];
    }
    const F inverse = set1(l == 0 ? 0 : factor / l);
    for (int64_t i = 0; i < p.v_head_dim; i += lanes) {
        const int64_t n = p.v_head_dim - i < lanes ? p.v_head_dim - i : lanes;
        store_n(out + i, load(o + i) * inverse, n);
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
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const typename P::Vector w = P::broadcast(q + r * units + i);
#pragma GCC unroll 2
            for (int v = 0; v < V; ++v) acc[r][v] = P::multiply_add(w, x[v], acc[r][v]);
        }
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

// Keys without a page count for no row.
template <class P>
inline void leave_out(const AttentionTile<P>& t, const AttentionStep::Chunk& c) {
    for (int64_t r = 0; r < t.rows; ++r)
        for (int64_t j = 0; j < c.len; ++j) t.scores[r * step_stride + c.at + j] = -infinity;
}

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
        typename P::Vector x[V];
        P::template value<Row, V>(values, stride, n - j, i, x);
#pragma GCC unroll 2
        for (int s = 0; s < P::size; ++s)
            prefetch_lines<V * lanes * Row::bytes / Row::block>(values + s * stride +
                                                                i / Row::block * Row::bytes + ahead);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const typename P::Vector w = P::broadcast(weights + r * step_stride);
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) acc[r][v] = P::multiply_add(w, x[v], acc[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) store(o + r * ldo + i + v * lanes, acc[r][v]);
}

// Vectors of values at once, fewer where registers are short: numbers are taken out of bytes and joined.
template <class P, class Row, int R>
constexpr int value_vecs = P::size > 1 && Row::parts > 1 && R > 4 ? tile_vecs / 2 : tile_vecs;

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

// Up to so many rows of a kv head it is cheaper to convert a chunk for every few_rows of them than to store
// what was converted.
constexpr int64_t few_rows = stream_rows, direct_rows = 8;

// Calls fn.operator()<rows>().
template <int R = few_rows, class Fn>
inline void with_rows(int64_t rows, Fn fn) {
    if (rows == R) return fn.template operator()<R>();
    if constexpr (R > 1) with_rows<R - 1>(rows, fn);
}
// Calls fn.operator()<R>(rows [first, first + R) of `t`) for `n` of its rows, R <= few_rows at a time.
template <class P, class Fn>
inline void few_at_a_time(const AttentionTile<P>& t, int64_t first, int64_t n, Fn fn) {
    for (const int64_t end = first + n; first < end; first += few_rows) {
        const AttentionTile<P> part = t.part(first, end - first < few_rows ? end - first : few_rows);
        with_rows(part.rows, [&]<int R>() { fn.template operator()<R>(part); });
    }
}

// Which keys of a step the tokens of a block see.
struct SeenKeys {
    const AttentionBlock* b;
    const AttentionStep* step;
    int64_t from(int64_t token) const { return step->from(b->first_position + token, b->params->window); }
    int64_t to(int64_t token) const { return step->to(b->first_position + token); }

    // Calls fn(token, n, range) for the tokens that see some keys of a chunk: n that see the same ones at
    // once.
    template <class P, class Fn>
    void each(const AttentionStep::Chunk& c, Fn fn) const {
        const auto range = [&](int64_t token) { return ChunkRange<P>(c, from(token), to(token)); };
        for (int64_t token = 0, end; token < b->n_tokens; token = end) {
            const ChunkRange<P> r = range(token);
            for (end = token + 1; end < b->n_tokens && range(end) == r;) ++end;
            if (r.lo < r.hi) fn(token, end - token, r);
        }
    }
};

// The softmax of all rows: kv head, then token, then query head of the group.
template <class P>
inline void softmax_rows(const AttentionBlock& b, const AttentionTile<P>& t, const AttentionStep& step) {
    constexpr int most = 4;  // rows at once
    const SeenKeys seen{&b, &step};
    const int64_t group = b.params->n_heads / b.params->n_kv_heads;
    KeyRange range[most];
    int64_t first = 0, n = 0;  // those that wait
    const auto work = [&] {
        with_rows<most>(n, [&]<int R>() {
            softmax_step<P, R>(*b.params, step.gaps, t.scores + first * step_stride, range, t.m + first,
                               t.l + first, t.o + first * t.v_cols, t.v_cols);
        });
        n = 0;
    };
    for (int64_t row = 0, token = 0; row < t.rows; token = token + 1 < b.n_tokens ? token + 1 : 0) {
        const KeyRange keys{seen.from(token), seen.to(token)};
        for (const int64_t next = row + group; row < next; ++row) {
            if (keys.from >= keys.to) continue;
            if (n > 0 && (n == most || step.gaps || first + n != row)) work();
            if (n == 0) first = row;
            range[n++] = keys;
        }
    }
    if (n > 0) work();
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

// The tokens of a tile against the keys of a step. What is converted has been asked for before: the step's
// values with its keys, and with its values the keys of `next`, of the head at `next_row`.
template <class P>
inline void attend_tile(const AttentionBlock& b, const AttentionTile<P>& t, const AttentionStep& step,
                        int64_t head_row, const AttentionStep& next, int64_t next_row) {
    const AttentionParams& p = *b.params;
    const int64_t group = p.n_heads / p.n_kv_heads;
    for (int64_t i = 0; i < step.count; ++i) {
        const AttentionStep::Chunk& c = step.chunks[i];
        if (c.row < 0) {
            leave_out(t, c);
            continue;
        }
        const int64_t unseen = step.start + c.at - b.first_position;  // tokens before the chunk's first key
        const int64_t row = unseen > 0 ? unseen * group : 0;
        ask_for(b.v_cache, c.row + head_row, c.len);
        load_keys(b.k_cache, p.head_dim, t, c.row + head_row, c.len);
        t.multiply->block(t.rows - row, chunk_keys, t.q + row * t.units, t.units, t.keys, chunk_keys, t.units,
                          t.scores + row * step_stride + c.at, step_stride, true);
    }
    softmax_rows(b, t, step);
    for (int64_t i = 0; i < step.count; ++i) {
        const AttentionStep::Chunk& c = step.chunks[i];
        if (c.row < 0) continue;
        if (i < next.count && next.chunks[i].row >= 0)
            ask_for(b.k_cache, next.chunks[i].row + next_row, next.chunks[i].len);
        decode_values(b, t, c.row + head_row, c.len);
        SeenKeys{&b, &step}.each<P>(c, [&](int64_t token, int64_t n, ChunkRange<P> r) {
            const int64_t row = token * group;
            t.multiply->block(n * group, t.v_cols, t.weights(row) + (c.at + r.lo) / P::size, step_stride,
                              t.values + r.lo / P::size * t.v_cols, t.v_cols, r.units(), t.o + row * t.v_cols,
                              t.v_cols, false);
        });
    }
}

// All steps of one split, as far as the last token sees.
template <class P>
inline void attend_split(const AttentionBlock& b, const AttentionTile<P>& t, int64_t split) {
    const Splits splits(*b.params);
    const int64_t page = b.params->page_size, rows = t.rows / b.kv_heads;
    const auto stop = [&](int64_t next_split) {
        const int64_t seen = b.first_position + b.n_tokens, begin = splits.begin(next_split);
        return seen < begin ? seen : begin;
    };
    const int64_t end = stop(split + 1);
    for (int64_t start = splits.begin(split); start < end; start += step_keys) {
        const AttentionStep step(b, start, end);
        if (step.count == 0) continue;
        const int64_t after = start + step_keys;
        const AttentionStep next(b, after < end ? after : end, after < end ? end : stop(b.split_end));
        if (P::depth == 1 && rows <= direct_rows) {
            attend_few(b, t, step, next);
            continue;
        }
        for (int64_t h = 0; h < b.kv_heads; ++h) {
            const bool last = h + 1 == b.kv_heads;
            attend_tile(b, t.part(h * rows, rows), step, h * page, last ? next : step,
                        last ? 0 : (h + 1) * page);
        }
    }
}

inline bool sees_split(const AttentionBlock& b, int64_t token, int64_t split) {
    const int64_t position = b.first_position + token;
    const Splits splits(*b.params);
    if (splits.begin(split) > position) return false;
    return b.params->window <= 0 || splits.begin(split + 1) > position - b.params->window + 1;
}

template <class P>
inline void clear_state(const AttentionTile<P>& t, float* m, float* l, float* o) {
    for (int64_t r = 0; r < t.rows; ++r) m[r] = -infinity, l[r] = 0;
    std::memset(o, 0, static_cast<size_t>(t.rows * t.v_cols) * 4);
}

// Rows of a block: kv head, then token, then query head of the kv head's group.
struct BlockRow {
    int64_t token, head;
    BlockRow(const AttentionBlock& b, int64_t r) {
        const int64_t group = b.params->n_heads / b.params->n_kv_heads, rows = b.n_tokens * group;
        token = r % rows / group;
        head = (b.kv_head + r / rows) * group + r % group;
    }
};

// What one split gave, to the joined state or into the partial records.
template <class P>
inline void hand_over(const AttentionBlock& b, const AttentionTile<P>& t, int64_t split) {
    const AttentionParams& p = *b.params;
    for (int64_t r = 0; r < t.rows; ++r) {
        const BlockRow row(b, r);
        if (!sees_split(b, row.token, split)) continue;
        const float* o = t.o + r * t.v_cols;
        if (b.out) {
            join(t.total_m[r], t.total_l[r], t.total_o + r * t.v_cols, t.m[r], t.l[r], o, t.v_cols);
            continue;
        }
        float* record = b.partial + row.token * b.partial_stride +
                        ((split - b.split_begin) * p.n_heads + row.head) * partial_floats(p);
        record[0] = t.m[r];
        record[1] = t.l[r];
        std::memcpy(record + partial_header, o, static_cast<size_t>(t.v_cols) * 4);
    }
}

template <class P>
inline void attend(const AttentionBlock& b) {
    const AttentionParams& p = *b.params;
    const int64_t group = p.n_heads / p.n_kv_heads;
    typename P::Multiplier multiplier;
    const AttentionTile<P> t(p, b.kv_heads * b.n_tokens * group, reinterpret_cast<float*>(b.scratch),
                             multiplier);
    for (int64_t r = 0; r < t.rows; ++r) {
        const BlockRow row(b, r);
        typename P::Number* const q = t.q + r * t.units;
        P::narrow(b.q + row.token * b.q_stride + row.head * p.head_dim, p.head_dim, p.scale * log2_e, q);
        for (int64_t i = p.head_dim / P::size; i < t.units; ++i) q[i] = {};
    }
    clear_state(t, t.total_m, t.total_l, t.total_o);
    for (int64_t split = b.split_begin; split < b.split_end; ++split) {
        clear_state(t, t.m, t.l, t.o);
        attend_split(b, t, split);
        hand_over(b, t, split);
    }
    if (!b.out) return;
    for (int64_t r = 0; r < t.rows; ++r) {
        const BlockRow row(b, r);
        write_row(p, t.total_m[r], t.total_l[r], t.total_o + r * t.v_cols,
                  b.sinks ? b.sinks + row.head : nullptr,
                  b.out + row.token * b.out_stride + row.head * p.v_head_dim);
    }
}

inline int64_t tile_tokens(const AttentionParams& p) {
    const int64_t group = p.n_heads / p.n_kv_heads;
    return group >= tile_queries ? 1 : tile_queries / group;
}
inline int64_t scratch_rows(const AttentionParams& p) {
    const int64_t tile = tile_tokens(p) * (p.n_heads / p.n_kv_heads);
    return tile > p.n_heads ? tile : p.n_heads;
}
