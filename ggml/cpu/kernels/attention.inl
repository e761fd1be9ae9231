// Attention of a tile of query rows over pages: online softmax within a split, splits joined in order.
// Few rows read the cache as it is (attention_few.inl), many have it converted for all of them.

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

template <class P>
inline int64_t tile_tokens(const AttentionParams& p) {
    const int64_t group = p.n_heads / p.n_kv_heads, rows = AttentionTile<P>::most_rows(p);
    return group >= rows ? 1 : rows / group;
}
template <class P>
inline size_t tile_scratch(const AttentionParams& p, int64_t tokens) {
    const int64_t tile = tokens * (p.n_heads / p.n_kv_heads), rows = tile > p.n_heads ? tile : p.n_heads;
    return static_cast<size_t>(padded(AttentionTile<P>::floats(p, rows))) * sizeof(float);
}
