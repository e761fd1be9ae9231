// The softmax of attention: step by step and for rows side by side, the joining of splits, the last division.
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

// Keys without a page count for no row.
template <class P>
inline void leave_out(const AttentionTile<P>& t, const AttentionStep::Chunk& c) {
    for (int64_t r = 0; r < t.rows; ++r)
        for (int64_t j = 0; j < c.len; ++j) t.scores[r * step_stride + c.at + j] = -infinity;
}

// Calls fn.operator()<rows>().
template <int R, class Fn>
inline void with_rows(int64_t rows, Fn fn) {
    if (rows == R) return fn.template operator()<R>();
    if constexpr (R > 1) with_rows<R - 1>(rows, fn);
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
