// What attention works on: tiles of query rows, steps of the context, and keys and values as it multiplies
// them. P says in which numbers: Reals, or several narrower ones in 32 bits (kernels/tile.inl), and what
// multiplies them. With P::depth > 1 that takes so many numbers at a time, and zeros fill what is missing.

constexpr int64_t chunk_keys = 32;  // keys read at once: at most this many, within one page
constexpr int64_t step_keys = 128;  // keys whose softmax is taken at once: so many positions of a split
constexpr int64_t step_stride = step_keys + chunk_keys;  // the last chunk of a step is multiplied whole

constexpr float infinity = __builtin_inff();
inline int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

// Scratch of one tile, cut from the block's memory. `rows` counts query vectors: kv heads x
// tokens x heads of the group.
template <class P>
struct AttentionTile {
    using Number = typename P::Number;
    int64_t rows, units, v_cols;  // units: numbers of P in a head
    typename P::Multiplier* multiply;
    Number *keys, *values, *q;
    float *decoded, *scores, *o, *total_o;
    float *m, *l, *total_m, *total_l;

    // Rows at most. What is converted serves a whole tile, and where pairs are multiplied converting is what
    // costs, so theirs are as tall as the second-level cache keeps.
    static int64_t most_rows(const AttentionParams& p) {
        constexpr int64_t least = worth_a_tile, most = P::size > 1 ? 256 : least, kept = int64_t{512} << 10;
        const int64_t row = (units_of(p) + step_stride + padded(p.v_head_dim)) * 4, fit = kept / row;
        return fit < least ? least : fit < most ? fit : most;
    }
    static int64_t units_of(const AttentionParams& p) {
        return (p.head_dim + P::size * P::depth - 1) / (P::size * P::depth) * P::depth;
    }
    static int64_t floats(const AttentionParams& p, int64_t rows) {
        const int64_t v_cols = padded(p.v_head_dim), d = padded(units_of(p));
        return chunk_keys * (d + v_cols) + decoded_floats(p) + padded(rows * d) +
               rows * (step_stride + 2 * v_cols) + 4 * padded(rows);
    }
    // A chunk of keys or, one by one, numbers of values.
    static int64_t decoded_floats(const AttentionParams& p) {
        const int64_t keys = chunk_keys * padded(p.head_dim), values = P::size * padded(p.v_head_dim);
        return keys > values ? keys : values;
    }
    AttentionTile(const AttentionParams& p, int64_t n, float* f, typename P::Multiplier& unit)
        : rows(n), units(units_of(p)), multiply(&unit) {
        static_assert(sizeof(Number) == sizeof(float));
        v_cols = padded(p.v_head_dim);
        const auto take = [&f](int64_t count) {
            float* start = f;
            f += count;
            return start;
        };
        const auto numbers = [&](int64_t count) { return reinterpret_cast<Number*>(take(count)); };
        keys = numbers(chunk_keys * padded(units));
        decoded = take(decoded_floats(p));
        values = numbers(chunk_keys * v_cols);
        q = numbers(padded(n * units));
        scores = take(n * step_stride);
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
        t.q += first * units;
        t.scores += first * step_stride;
        t.o += first * v_cols;
        t.total_o += first * v_cols;
        for (float** p : {&t.m, &t.l, &t.total_m, &t.total_l}) *p += first;
        return t;
    }
    // After the softmax the scores of a row, from its start on, are the weights of its values.
    const Number* weights(int64_t row) const {
        return reinterpret_cast<const Number*>(scores + row * step_stride);
    }
};

// Consecutive positions of a split, in chunks: those that the last token of the block sees and the window of
// the first does not leave out.
struct AttentionStep {
    struct Chunk {
        int64_t row;  // of the cache, for the block's first kv head; -1: no page, and so no keys
        int64_t at;   // of its first key within the step
        int64_t len;
    };
    int64_t start = 0, len = 0, count = 0;
    bool gaps = false;  // some chunk has no page
    Chunk chunks[step_keys];

    // Of positions [first, first + step_keys), those below `end`.
    AttentionStep(const AttentionBlock& b, int64_t first, int64_t end) : start(first) {
        const int64_t stop = end < first + step_keys ? end : first + step_keys;
        const AttentionParams& p = *b.params;
        const int64_t cache_pages = b.k_cache.rows / (int64_t{p.n_kv_heads} * p.page_size);
        const int64_t lowest = p.window > 0 ? b.first_position - p.window + 1 : 0;
        for (int64_t position = start, n; position < stop; position += n) {
            const int64_t page = position / p.page_size, offset = position % p.page_size;
            const int64_t left =
                stop - position < p.page_size - offset ? stop - position : p.page_size - offset;
            n = left < chunk_keys ? left : chunk_keys;
            len += n;
            if (position + n <= lowest) continue;
            const int64_t id = page < b.n_pages ? b.pages[page] : -1;
            const bool known = id >= 0 && id < cache_pages;
            gaps |= !known;
            chunks[count++] = {known ? (id * p.n_kv_heads + b.kv_head) * p.page_size + offset : -1,
                               position - start, n};
        }
    }
    // The keys of this step that the token at `position` sees: [from, to), perhaps none.
    int64_t from(int64_t position, int64_t window) const {
        const int64_t low = window > 0 ? position - window + 1 - start : 0;
        return low > 0 ? low : 0;
    }
    int64_t to(int64_t position) const {
        const int64_t high = position + 1 - start;
        return high < len ? high : len;
    }
};

// The part of a chunk that lies in [from, to) of its step: [lo, hi) of its keys, perhaps none. Keys that meet
// in one number of P are taken together; those that are not in the range have weight zero.
template <class P>
struct ChunkRange {
    int64_t lo, hi;
    ChunkRange(const AttentionStep::Chunk& c, int64_t from, int64_t to)
        : lo(from > c.at ? (from - c.at) / P::size * P::size : 0), hi(to - c.at < c.len ? to - c.at : c.len) {
        if (P::depth > 1 && lo < hi) lo = 0, hi = c.len;
    }
    int64_t units() const { return (hi - lo + P::size - 1) / P::size; }
    bool operator==(const ChunkRange&) const = default;
};

// Asks for the memory of n rows of a cache ahead of their use.
inline void ask_for(const Tensor& cache, int64_t row, int64_t n) {
    const auto* p = cache.row<std::byte>(row);
    for (int64_t i = 0; i < n * cache.stride; i += 64) prefetch_lines<1, second_level>(p + i);
}

// Values [0, n) of a chunk -> values[number][v_cols], zeros behind v_head_dim and behind an odd number's
// keys.
template <class P>
inline void decode_values(const AttentionBlock& b, const AttentionTile<P>& t, int64_t cache_row, int64_t n) {
    const int64_t dim = b.params->v_head_dim, stride = b.v_cache.stride;
    const auto* rows = b.v_cache.row<std::byte>(cache_row);
    if (const int64_t known = (n + P::size - 1) / P::size; P::depth > 1 && known < P::depth)
        std::memset(t.values + known * t.v_cols, 0, static_cast<size_t>((P::depth - known) * t.v_cols) * 4);
    const auto direct = [&]<class Row>() {
        constexpr int V = 16 / lanes;  // v_cols is a multiple of this
        auto* out = t.values;
        for (int64_t j = 0; j < n; j += P::size)
            for (int64_t i = 0; i < dim; i += V * lanes, out += V * lanes) {
                typename P::Vector x[V];
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v)
                    x[v] = P::template value<Row, V>(rows + j * stride, stride, n - j, i, v);
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) P::write(out + v * lanes, x[v]);
            }
    };
    if (dim == t.v_cols && visit_row(b.v_cache.type, direct)) return;
    for (int64_t j = 0; j < n; j += P::size) {
        float* const decoded = P::size > 1 ? t.decoded : reinterpret_cast<float*>(t.values + j * t.v_cols);
        for (int s = 0; s < P::size; ++s) {
            float* const row = decoded + s * t.v_cols;
            const int64_t known = j + s < n ? dim : 0;
            if (known) decode_row(info(b.v_cache.type), rows + (j + s) * stride, row, dim);
            std::memset(row + known, 0, static_cast<size_t>(t.v_cols - known) * 4);
        }
        if constexpr (P::size > 1)
            for (int64_t i = 0; i < t.v_cols; i += lanes)
                P::write(t.values + j / P::size * t.v_cols + i,
                         P::join(load(decoded + i), load(decoded + t.v_cols + i)));
    }
}

// Calls fn.operator()<V>(j) for the V vectors from key j on of keys [0, n), two at once while there are two.
template <class Fn>
[[gnu::always_inline]] inline void each_two_vectors(int64_t n, Fn fn) {
    int64_t j = 0;
    for (; j + lanes < n; j += 2 * lanes) fn.template operator()<2>(j);
    if (j < n) fn.template operator()<1>(j);
}

// Keys [0, n) of a chunk -> keys[number][chunk_keys], with anything behind.
template <class P>
inline void load_keys(const Tensor& cache, int64_t head_dim, const AttentionTile<P>& t, int64_t cache_row,
                      int64_t n) {
    if (const int64_t known = head_dim / P::size; P::depth > 1 && known < t.units)
        std::memset(t.keys + known * chunk_keys, 0, static_cast<size_t>((t.units - known) * chunk_keys) * 4);
    if (cache.layout == Layout::key_tiles) {
        const auto* const tiles = cache.row<std::byte>(cache_row);
        visit_row(cache.type, [&]<class Row>() {
            each_two_vectors(n, [&]<int V>(int64_t j) {
                auto* const keys = t.keys + j;
                each_column<P, Row, V, false>(tiles, head_dim, j, 0,
                                              [=](int64_t i, const typename P::Vector(&x)[V]) {
#pragma GCC unroll 2
                                                  for (int v = 0; v < V; ++v)
                                                      P::write(keys + i * chunk_keys + v * lanes, x[v]);
                                              });
            });
        });
        return;
    }
    const int64_t ld = padded(head_dim);
    for (int64_t j = 0; j < n; ++j) {
        float* const row = t.decoded + j * ld;
        decode_row(info(cache.type), cache.row<std::byte>(cache_row + j), row, head_dim);
        if constexpr (P::size > 1) P::narrow(row, head_dim, 1, reinterpret_cast<typename P::Number*>(row));
    }
    for (int64_t j = 0; j < n; j += lanes) {  // 32 bits are moved, whatever they hold
        const RowSet rows(reinterpret_cast<const std::byte*>(t.decoded + j * ld), ld * 4, n - j);
        fill_rows<F32Rows>(rows, 0, head_dim / P::size, reinterpret_cast<float*>(t.keys) + j, chunk_keys);
    }
}
