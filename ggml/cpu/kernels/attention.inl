// Attention of a tile of query rows over pages: online softmax within a split, splits joined in order.
// A row's operations depend only on its position and the window: masks, tiles and threads never change them.

constexpr int64_t chunk_keys = 32;  // keys handled at once: at most this many, within one page
constexpr int64_t tile_queries = 64;

constexpr float infinity = __builtin_inff();
inline int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

// Scratch of one tile, cut from the block's memory. `rows` counts query vectors: tokens x heads of the group.
struct AttentionTile {
    int64_t rows, head_dim, v_cols;
    float *keys, *values, *decoded, *q, *scores, *o, *total_o;
    float *m, *l, *total_m, *total_l;

    static int64_t floats(const AttentionParams& p, int64_t rows) {
        const int64_t v_cols = padded(p.v_head_dim), d = padded(p.head_dim);
        return chunk_keys * (2 * d + v_cols) + padded(rows * p.head_dim) + rows * (chunk_keys + 2 * v_cols) +
               4 * padded(rows);
    }
    AttentionTile(const AttentionParams& p, int64_t n, float* f) : rows(n), head_dim(p.head_dim) {
        v_cols = padded(p.v_head_dim);
        const auto take = [&f](int64_t count) {
            float* start = f;
            f += count;
            return start;
        };
        keys = take(chunk_keys * padded(p.head_dim));
        decoded = take(chunk_keys * padded(p.head_dim));
        values = take(chunk_keys * v_cols);
        q = take(padded(n * p.head_dim));
        scores = take(n * chunk_keys);
        o = take(n * v_cols);
        total_o = take(n * v_cols);
        m = take(padded(n));
        l = take(padded(n));
        total_m = take(padded(n));
        total_l = take(padded(n));
    }
    // Rows [first, first + n) alone; the memory of a chunk is shared.
    AttentionTile part(int64_t first, int64_t n) const {
        AttentionTile t = *this;
        t.rows = n;
        t.q += first * head_dim;
        t.scores += first * chunk_keys;
        t.o += first * v_cols;
        t.total_o += first * v_cols;
        for (float** p : {&t.m, &t.l, &t.total_m, &t.total_l}) *p += first;
        return t;
    }
};

// Values [0, n) of a chunk -> values[key][v_cols], zeros behind v_head_dim.
inline void decode_values(const AttentionBlock& b, const AttentionTile& t, int64_t cache_row, int64_t n) {
    const TypeInfo& type = info(b.v_cache.type);
    const int64_t dim = b.params->v_head_dim;
    for (int64_t j = 0; j < n; ++j) {
        decode_row(type, b.v_cache.row<std::byte>(cache_row + j), t.values + j * t.v_cols, dim);
        std::memset(t.values + j * t.v_cols + dim, 0, static_cast<size_t>(t.v_cols - dim) * 4);
    }
}

// Keys [0, n) of a chunk -> keys[dim][chunk_keys], with anything behind.
inline void load_keys(const Tensor& cache, const AttentionTile& t, int64_t cache_row, int64_t n) {
    const int64_t d = t.head_dim, ld = padded(d);
    if (cache.layout == Layout::key_tiles) {
        visit_row(cache.type, [&]<class Row>() {
            for (int64_t j = 0; j < n; j += lanes)
                each_column<Row, 1>(cache.row<std::byte>(cache_row), d, j, [&](int64_t i, const F(&x)[1]) {
                    store(t.keys + i * chunk_keys + j, x[0]);
                });
        });
        return;
    }
    for (int64_t j = 0; j < n; ++j)
        decode_row(info(cache.type), cache.row<std::byte>(cache_row + j), t.decoded + j * ld, d);
    for (int64_t j = 0; j < n; j += lanes) {
        const RowSet rows(reinterpret_cast<const std::byte*>(t.decoded + j * ld), ld * 4, n - j);
        fill_rows<F32Rows>(rows, 0, d, t.keys + j, chunk_keys);
    }
}

// One row's softmax step over its scores; keys outside [from, to) of the chunk do not count.
inline void softmax_step(const AttentionParams& p, float* s, int64_t from, int64_t to, float& m, float& l,
                         float* o, int64_t v_cols) {
    const F scale = set1(p.scale), cap = set1(p.softcap);
    for (int64_t j = 0; j < chunk_keys; j += lanes) {
        F v = load(s + j) * scale;
        if (p.softcap > 0) v = cap * tanh(v / cap);
        store(s + j, v);
    }
    for (int64_t j = 0; j < from; ++j) s[j] = -infinity;
    for (int64_t j = to; j < chunk_keys; ++j) s[j] = -infinity;
    F largest = set1(m);
    for (int64_t j = 0; j < chunk_keys; j += lanes) largest = max(largest, load(s + j));
    const float new_m = max_of(largest);
    F total = zero();
    for (int64_t j = 0; j < chunk_keys; j += lanes) {
        const F e = exp(load(s + j) - set1(new_m));
        store(s + j, e);
        total = total + e;
    }
    if (new_m == m) {  // nothing shrinks
        l += sum(total);
        return;
    }
    alignas(64) float shrink[lanes];
    store(shrink, exp(set1(m) - set1(new_m)));
    l = l * shrink[0] + sum(total);
    m = new_m;
    for (int64_t i = 0; i < v_cols; i += lanes) store(o + i, load(o + i) * set1(shrink[0]));
}

// total (m, l, o) becomes the join of itself and one split's result; a split without keys changes nothing.
inline void join(float& tm, float& tl, float* to, float m, float l, const float* o, int64_t v_cols) {
    if (l == 0) return;
    alignas(64) float factor[2][lanes];
    const float new_m = tm > m ? tm : m;
    store(factor[0], exp(set1(tm) - set1(new_m)));
    store(factor[1], exp(set1(m) - set1(new_m)));
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
        const float new_m = *sink > m ? *sink : m;
        store(e[0], exp(set1(m) - set1(new_m)));
        store(e[1], exp(set1(*sink) - set1(new_m)));
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
template <class Row, int R, int V>
inline void score_vectors(const std::byte* tiles, int64_t d, const float* q, int64_t j, float* s) {
    F acc[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) acc[r][v] = zero();
    each_column<Row, V>(
        tiles, d, j, [&](int64_t i, const F(&x)[V]) __attribute__((always_inline)) {
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const F w = set1(q[r * d + i]);
#pragma GCC unroll 2
                for (int v = 0; v < V; ++v) acc[r][v] = fma(w, x[v], acc[r][v]);
            }
        });
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) store(s + r * chunk_keys + j + v * lanes, acc[r][v]);
}

// Scores of a tile's R rows with keys [0, n) of a chunk.
template <int R>
inline void score_keys(const AttentionBlock& b, const AttentionTile& t, int64_t cache_row, int64_t n) {
    if (b.k_cache.layout != Layout::key_tiles) {
        load_keys(b.k_cache, t, cache_row, n);
        return fma_block(R, chunk_keys, t.q, t.head_dim, t.keys, chunk_keys, t.head_dim, t.scores, chunk_keys,
                         true);
    }
    const auto* tiles = b.k_cache.row<std::byte>(cache_row);
    visit_row(b.k_cache.type, [&]<class Row>() {
        int64_t j = 0;
        for (; j + lanes < n; j += 2 * lanes) score_vectors<Row, R, 2>(tiles, t.head_dim, t.q, j, t.scores);
        if (j < n) score_vectors<Row, R, 1>(tiles, t.head_dim, t.q, j, t.scores);
    });
}

// o[r][i .. i + V vectors) += sum over n values of p[r][j] * value[j].
template <class Row, int R, int V>
inline void add_values(const std::byte* values, int64_t stride, int64_t n, const float* p, int64_t i,
                       float* o, int64_t ldo) {
    F acc[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) acc[r][v] = load(o + r * ldo + i + v * lanes);
    for (int64_t j = 0; j < n; ++j, values += stride) {
        F x[V];
        Row::template value<V>(values, i, x);
        prefetch_lines<V * lanes * Row::bytes / Row::block>(values + i / Row::block * Row::bytes +
                                                            cache_ahead);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const F w = set1(p[r * chunk_keys + j]);
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) acc[r][v] = fma(w, x[v], acc[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) store(o + r * ldo + i + v * lanes, acc[r][v]);
}

constexpr int value_vecs = tile_vecs > 2 ? 4 : 2;

// All R rows of a tile: the weighted values [lo, hi) of a chunk, whose first is given. A value has `cols`
// numbers, whole vectors of them; what lies behind them in memory is not the chunk's to read.
template <class Row, int R>
inline void add_rows(const AttentionTile& t, const std::byte* values, int64_t stride, int64_t cols,
                     int64_t lo, int64_t hi) {
    int64_t i = 0;
    for (; i + value_vecs * lanes <= cols; i += value_vecs * lanes)
        add_values<Row, R, value_vecs>(values + lo * stride, stride, hi - lo, t.scores + lo, i, t.o,
                                       t.v_cols);
    for (; i < cols; i += lanes)
        add_values<Row, R, 1>(values + lo * stride, stride, hi - lo, t.scores + lo, i, t.o, t.v_cols);
}

// One token's R heads against keys [lo, hi) of a chunk, straight from the cache where its type allows.
template <int R>
inline void attend_rows(const AttentionBlock& b, const AttentionTile& t, int64_t cache_row, int64_t lo,
                        int64_t hi) {
    const AttentionParams& p = *b.params;
    score_keys<R>(b, t, cache_row, hi);
    for (int r = 0; r < R; ++r)
        softmax_step(p, t.scores + r * chunk_keys, lo, hi, t.m[r], t.l[r], t.o + r * t.v_cols, t.v_cols);
    const auto direct = [&]<class Row>() {
        add_rows<Row, R>(t, b.v_cache.row<std::byte>(cache_row), b.v_cache.stride, p.v_head_dim, lo, hi);
    };
    if (p.v_head_dim % lanes == 0 && visit_row(b.v_cache.type, direct)) return;
    decode_values(b, t, cache_row, hi);
    add_rows<FloatRow<Type::f32>, R>(t, reinterpret_cast<const std::byte*>(t.values), t.v_cols * 4, t.v_cols,
                                     lo, hi);
}

// R = t.rows <= few_rows. Up to direct_rows heads of one token go to the cache few_rows at a time: it is
// cheaper to convert a chunk twice than to store what was converted.
constexpr int64_t few_rows = stream_rows, direct_rows = 2 * few_rows;
template <int R = few_rows>
inline void attend_few(const AttentionBlock& b, const AttentionTile& t, int64_t cache_row, int64_t lo,
                       int64_t hi) {
    if (t.rows == R) return attend_rows<R>(b, t, cache_row, lo, hi);
    if constexpr (R > 1) attend_few<R - 1>(b, t, cache_row, lo, hi);
}

// One token's heads against a chunk whose first key is at position `start`.
inline void attend_token(const AttentionBlock& b, const AttentionTile& t, int64_t cache_row, int64_t start,
                         int64_t len) {
    const int64_t window = b.params->window;
    const int64_t low = window > 0 ? b.first_position - window + 1 - start : 0, lo = low > 0 ? low : 0;
    const int64_t seen = b.first_position + 1 - start, hi = seen < len ? seen : len;
    if (lo < hi) attend_few(b, t, cache_row, lo, hi);
}

// The tokens of a tile against one chunk of keys, first key at position `start`, `len` keys long.
inline void attend_chunk(const AttentionBlock& b, const AttentionTile& t, int64_t start, int64_t len) {
    const AttentionParams& p = *b.params;
    const int64_t group = p.n_heads / p.n_kv_heads;
    const auto from = [&](int64_t token) {  // first and last-plus-one key of the chunk that a token sees
        const int64_t low = p.window > 0 ? b.first_position + token - p.window + 1 - start : 0;
        return low > 0 ? low : 0;
    };
    const auto to = [&](int64_t token) {
        const int64_t high = b.first_position + token + 1 - start;
        return high < len ? high : len;
    };
    for (int64_t token = 0; token < b.n_tokens;) {
        const int64_t lo = from(token), hi = to(token);
        int64_t end = token + 1;  // tokens that see the same keys share a tile
        while (end < b.n_tokens && from(end) == lo && to(end) == hi) ++end;
        const int64_t row = token * group, rows = (end - token) * group;
        token = end;
        if (lo >= hi) continue;
        float* s = t.scores + row * chunk_keys;
        fma_block(rows, chunk_keys, t.q + row * t.head_dim, t.head_dim, t.keys, chunk_keys, t.head_dim, s,
                  chunk_keys, true);
        for (int64_t r = row; r < row + rows; ++r)
            softmax_step(p, t.scores + r * chunk_keys, lo, hi, t.m[r], t.l[r], t.o + r * t.v_cols, t.v_cols);
        fma_block(rows, t.v_cols, s + lo, chunk_keys, t.values + lo * t.v_cols, t.v_cols, hi - lo,
                  t.o + row * t.v_cols, t.v_cols, false);
    }
}

// One chunk of a page: `seen` of its `len` keys exist for the last token.
inline void attend_heads(const AttentionBlock& b, const AttentionTile& t, int64_t page_row, int64_t start,
                         int64_t len, int64_t seen) {
    const int64_t rows = t.rows / b.kv_heads;
    for (int64_t h = 0; h < b.kv_heads; ++h) {
        const int64_t cache_row = page_row + h * b.params->page_size;
        const AttentionTile head = t.part(h * rows, rows);
        if (b.n_tokens == 1 && rows <= direct_rows) {
            for (int64_t r = 0; r < rows; r += few_rows)
                attend_token(b, head.part(r, rows - r < few_rows ? rows - r : few_rows), cache_row, start,
                             len);
        } else {
            load_keys(b.k_cache, head, cache_row, seen);
            decode_values(b, head, cache_row, seen);
            attend_chunk(b, head, start, len);
        }
    }
}

// All chunks of one split; pages outside the cache hold no keys.
inline void attend_split(const AttentionBlock& b, const AttentionTile& t, int64_t split) {
    const AttentionParams& p = *b.params;
    const int64_t cache_pages = b.k_cache.rows / (int64_t{p.n_kv_heads} * p.page_size);
    const int64_t last = b.first_position + b.n_tokens - 1;
    const int64_t lowest = p.window > 0 ? b.first_position - p.window + 1 : 0;
    const int64_t begin = split * split_tokens(p), stop = begin + split_tokens(p);
    for (int64_t start = begin, next; start < stop && start <= last; start = next) {
        const int64_t page = start / p.page_size, offset = start % p.page_size;
        const int64_t left = p.page_size - offset, len = left < chunk_keys ? left : chunk_keys;
        next = start + len;
        if (page >= b.n_pages) return;
        const int64_t id = b.pages[page];
        if (next <= lowest || id < 0 || id >= cache_pages) continue;
        const int64_t seen = last - start + 1 < len ? last - start + 1 : len;
        attend_heads(b, t, (id * p.n_kv_heads + b.kv_head) * p.page_size + offset, start, len, seen);
    }
}

inline bool sees_split(const AttentionBlock& b, int64_t token, int64_t split) {
    const int64_t position = b.first_position + token, size = split_tokens(*b.params);
    if (split * size > position) return false;
    return b.params->window <= 0 || (split + 1) * size > position - b.params->window + 1;
}

inline void clear_state(const AttentionTile& t, float* m, float* l, float* o) {
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
inline void hand_over(const AttentionBlock& b, const AttentionTile& t, int64_t split) {
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

inline void attention_block(const AttentionBlock& b) {
    const AttentionParams& p = *b.params;
    const int64_t group = p.n_heads / p.n_kv_heads;
    const AttentionTile t(p, b.kv_heads * b.n_tokens * group, reinterpret_cast<float*>(b.scratch));
    for (int64_t r = 0; r < t.rows; r += group) {
        const BlockRow row(b, r);
        std::memcpy(t.q + r * p.head_dim, b.q + row.token * b.q_stride + row.head * p.head_dim,
                    static_cast<size_t>(group * p.head_dim) * 4);
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

inline void attention_merge_block(const AttentionBlock& b) {
    const AttentionParams& p = *b.params;
    const int64_t group = p.n_heads / p.n_kv_heads;
    const AttentionTile t(p, group, reinterpret_cast<float*>(b.scratch));
    for (int64_t i = 0; i < b.n_tokens; ++i) {
        for (int64_t g = 0; g < group; ++g) {
            const int64_t head = b.kv_head * group + g;
            float m = -infinity, l = 0;
            std::memset(t.total_o, 0, static_cast<size_t>(t.v_cols) * 4);
            for (int64_t split = b.split_begin; split < b.split_end; ++split) {
                if (!sees_split(b, i, split)) continue;
                const float* record = b.partial + i * b.partial_stride +
                                      ((split - b.split_begin) * p.n_heads + head) * partial_floats(p);
                join(m, l, t.total_o, record[0], record[1], record + partial_header, t.v_cols);
            }
            write_row(p, m, l, t.total_o, b.sinks ? b.sinks + head : nullptr,
                      b.out + i * b.out_stride + head * p.v_head_dim);
        }
    }
}

inline int64_t tile_tokens(const AttentionParams& p) {
    const int64_t group = p.n_heads / p.n_kv_heads;
    return group >= tile_queries ? 1 : tile_queries / group;
}
inline size_t attention_scratch(const AttentionParams& p) {
    const int64_t tile = tile_tokens(p) * (p.n_heads / p.n_kv_heads);
    const int64_t rows = tile > p.n_heads ? tile : p.n_heads;
    return static_cast<size_t>(padded(AttentionTile::floats(p, rows))) * sizeof(float);
}
