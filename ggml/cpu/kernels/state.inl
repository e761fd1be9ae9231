// Kernels over a sequence's state: the convolution over its last inputs, the gated delta rule and the state
// space.
// Every channel, and every column of a head's matrix, is summed by itself and in the order of the rows, so
// how they are cut into blocks cannot be seen in the result.

// Channels of a convolution that are worked on together, row by row: of a row they are some lines in a piece,
// and what the next rows read of it once more stays in the nearest cache. The row that comes rows_ahead later
// is asked for: rows are too far apart to be foreseen.
constexpr int64_t conv_strip = 64, rows_ahead = 8;

// out[i] of the vector at i of a strip, of which n channels count, of inputs in the order of time.
template <int taps, Activation act, bool whole>
inline void conv_vector(const float* const (&inputs)[taps], const float (&weight)[taps][conv_strip],
                        const float* bias, int64_t i, int64_t n, float* out) {
    F sum = load(bias + i);
    for (int t = 0; t < taps; ++t)
        sum = fma(load(weight[t] + i), whole ? load(inputs[t] + i) : load_n(inputs[t] + i, n - i), sum);
    const F y = activated<act>(sum);
    whole ? store(out + i, y) : store_n(out + i, y, n - i);
}

template <int taps, Activation act>
inline void conv_channels(const ConvBlock& b, int64_t c, int64_t n) {
    constexpr int kept = taps - 1;
    const size_t bytes = static_cast<size_t>(n) * sizeof(float);
    alignas(64) float weight[taps][conv_strip] = {}, bias[conv_strip] = {}, before[kept][conv_strip] = {};
    for (int64_t i = 0; i < n; ++i)
        for (int t = 0; t < taps; ++t) weight[t][i] = b.weight[(c + i) * taps + t];
    if (b.bias) std::memcpy(bias, b.bias + c, bytes);
    for (int i = 0; i < kept && !b.fresh; ++i)
        std::memcpy(before[i], b.state + i * b.state_stride + c, bytes);
    const auto row = [&](int64_t r) { return r < 0 ? before[r + kept] : b.x + r * b.x_stride + c; };
    for (int64_t r = 0; r < b.n_rows; ++r) {
        if (r + rows_ahead < b.n_rows)
            prefetch_lines<conv_strip * 4>(reinterpret_cast<const std::byte*>(row(r + rows_ahead)));
        const float* inputs[taps];
        for (int t = 0; t < taps; ++t) inputs[t] = row(r - kept + t);
        float* const out = b.out + r * b.out_stride + c;
        int64_t i = 0;
        for (; i + lanes <= n; i += lanes) conv_vector<taps, act, true>(inputs, weight, bias, i, n, out);
        if (i < n) conv_vector<taps, act, false>(inputs, weight, bias, i, n, out);
    }
    for (int i = 0; i < kept; ++i)
        std::memcpy(b.state + i * b.state_stride + c, row(b.n_rows - kept + i), bytes);
}

template <int taps>
inline void conv_with(const ConvBlock& b) {
    if (b.params->n_taps != taps) {
        if constexpr (taps < max_conv_taps) conv_with<taps + 1>(b);
        return;
    }
    for (int64_t c = 0; c < b.n_channels; c += conv_strip) {
        const int64_t n = b.n_channels - c < conv_strip ? b.n_channels - c : conv_strip;
        b.params->act == Activation::silu ? conv_channels<taps, Activation::silu>(b, c, n)
                                          : conv_channels<taps, Activation::none>(b, c, n);
    }
}

inline void causal_conv_block(const ConvBlock& b) { conv_with<2>(b); }

// out = x * scale / |x|.
inline void unit_row(const float* x, int64_t n, float scale, float* out) {
    scaled_row(x, scale / __builtin_sqrtf(row_sum<true>(x, n, 0) + state_norm_eps), n, out);
}

// A few rows' queries and keys, by the delta rule scaled, and which rows those are.
constexpr int64_t state_rows_at_once = 16;
struct StateRows {
    const float *q[state_rows_at_once], *k[state_rows_at_once];
    int64_t first = 0, n = 0;
};

// V vectors of columns of S, in the last of which n columns count, for one row: S = g S + k d, and then q' S
// + skip v. By the delta rule d is beta (v - g k' S), else beta v.
template <int V, bool corrects>
inline void state_columns(const StateBlock& b, const float* q, const float* k, const float* gates,
                          const float* v, float* state, int64_t state_stride, float* out, int64_t n) {
    const auto part = [&](float* p, int j) {
        return j < V - 1 ? load(p + j * lanes) : load_n(p + j * lanes, n);
    };
    const int64_t rows = b.k_dim;
    const F g = set1(gates[0]), beta = set1(gates[1]);
    F had[V], sum[V];
    for (int j = 0; j < V; ++j) had[j] = sum[j] = zero();
    for (int64_t i = 0; corrects && i < rows; ++i) {
        const F key = set1(k[i]);
        for (int j = 0; j < V; ++j) had[j] = fma(key, part(state + i * state_stride, j), had[j]);
    }
    F delta[V];
    for (int j = 0; j < V; ++j) {
        const F value = j < V - 1 ? load(v + j * lanes) : load_n(v + j * lanes, n);
        if constexpr (corrects) {
            delta[j] = beta * (value - g * had[j]);
        } else {
            delta[j] = beta * value;
            sum[j] = set1(b.skip) * value;
        }
    }
    for (int64_t i = 0; i < rows; ++i) {
        float* const row = state + i * state_stride;
        const F key = set1(k[i]), query = set1(q[i]);
        for (int j = 0; j < V; ++j) {
            const F s = fma(key, delta[j], g * part(row, j));
            sum[j] = fma(query, s, sum[j]);
            j < V - 1 ? store(row + j * lanes, s) : store_n(row + j * lanes, s, n);
        }
    }
    for (int j = 0; j < V; ++j)
        j < V - 1 ? store(out + j * lanes, sum[j]) : store_n(out + j * lanes, sum[j], n);
}

// The rows through V vectors of columns. Where there are several, the columns move together for them: in
// place, rows of a matrix are so far apart that few of them stay in the nearest cache.
template <int V, bool corrects>
inline void state_strip(const StateBlock& b, const StateRows& rows, int64_t c, int64_t n) {
    constexpr int64_t few = 7, width = V * lanes;
    float *state = b.state + c, *const in_place = state;
    int64_t stride = b.state_stride;
    alignas(64) float strip[V <= 4 ? max_state_dim * width : 1];
    const bool moves = V <= 4 && rows.n > few;
    if (moves) {
        for (int64_t i = 0; i < b.k_dim; ++i)
            for (int j = 0; j < V; ++j) {
                const float* const from = in_place + i * b.state_stride + j * lanes;
                store(strip + i * width + j * lanes, j < V - 1 ? load(from) : load_n(from, n));
            }
        state = strip, stride = width;
    }
    for (int64_t i = 0; i < rows.n; ++i) {
        const int64_t r = rows.first + i;
        state_columns<V, corrects>(b, rows.q[i], rows.k[i], b.gates + 2 * r, b.v + r * b.stride + c, state,
                                   stride, b.out + r * b.out_stride + c, n);
    }
    for (int64_t i = 0; moves && i < b.k_dim; ++i)
        for (int j = 0; j < V; ++j) {
            float* const to = in_place + i * b.state_stride + j * lanes;
            const F moved = load(strip + i * width + j * lanes);
            j < V - 1 ? store(to, moved) : store_n(to, moved, n);
        }
}

// As many columns at once as there are registers for, then fewer.
template <int V, bool corrects>
inline int64_t state_strips(const StateBlock& b, const StateRows& rows, int64_t c) {
    const int64_t stays = b.n_columns % lanes;
    for (; b.n_columns - c > (V - 1) * lanes || (V == 1 && c < b.n_columns); c += V * lanes)
        state_strip<V, corrects>(b, rows, c, b.n_columns - c < V * lanes ? stays : lanes);
    return c;
}

template <bool corrects>
inline void state_rows(const StateBlock& b) {
    alignas(64) float q[state_rows_at_once][max_state_dim], k[state_rows_at_once][max_state_dim];
    const int64_t dim = b.k_dim;
    const float scale = 1 / __builtin_sqrtf(static_cast<float>(dim));
    for (int64_t i = 0; b.fresh && i < dim; ++i)
        std::memset(b.state + i * b.state_stride, 0, static_cast<size_t>(b.n_columns) * sizeof(float));
    StateRows rows;
    for (; rows.first < b.n_rows; rows.first += rows.n) {
        const int64_t left = b.n_rows - rows.first;
        rows.n = left < state_rows_at_once ? left : state_rows_at_once;
        for (int64_t i = 0; i < rows.n; ++i) {
            const int64_t at = (rows.first + i) * b.stride;
            rows.q[i] = b.q + at, rows.k[i] = b.k + at;
            if constexpr (corrects) {
                unit_row(b.q + at, dim, scale, q[i]);
                unit_row(b.k + at, dim, 1, k[i]);
                rows.q[i] = q[i], rows.k[i] = k[i];
            }
        }
        int64_t c = 0;
        if (lanes >= 16 && rows.n == 1) c = state_strips<8, corrects>(b, rows, c);
        c = state_strips<4, corrects>(b, rows, c);
        c = state_strips<2, corrects>(b, rows, c);
        state_strips<1, corrects>(b, rows, c);
    }
}

inline void delta_rule_block(const StateBlock& b) { state_rows<true>(b); }
inline void ssm_scan_block(const StateBlock& b) { state_rows<false>(b); }

extern const StateKernels state_kernels;
constinit const StateKernels state_kernels{
    .causal_conv = causal_conv_block, .delta_rule = delta_rule_block, .ssm_scan = ssm_scan_block};
