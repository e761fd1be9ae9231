// What all blocks of a matmul share: their measures, packed weights, and the end with bias and residual.
// Whether weights are streamed or fill a panel changes where they pass through, never an output's order.

constexpr int64_t panel_columns = tile_vecs * lanes;     // of a float panel
constexpr int64_t code_columns = int_tile_vecs * lanes;  // of a panel of codes
constexpr int64_t block_rows = 256;                      // most rows of a block
constexpr int64_t panel_bytes = 256 * 1024;              // fits the second-level cache beside the activations
constexpr int64_t small_panel_bytes = 64 * 1024;
constexpr int64_t small_rows = 48;  // up to here panels are small: filling and using them alternate quickly
// Up to here a group of weights is streamed for every stream_rows rows, from the cache after the first time:
// cheaper than a panel, and the weights pass through memory once.
constexpr int64_t streamed_rows = 4 * stream_rows;
// A stream of codes goes through at least so many bytes before it jumps to where the others' end: where one
// begins anew, memory has to wait.
constexpr int64_t least_stretch = 32 * 1024;
// Most panels that share the words of a tile's activations.
constexpr int64_t word_panels = word_sums ? 4 : 1;
// Columns whose sums lie side by side: of a gate, and as many of what it gates, which make a block of int8.
constexpr int64_t gated_columns = 2 * int8_block;
constexpr int64_t tile_bytes =
    block_rows * 4 * (gated_columns > panel_columns ? gated_columns : panel_columns);
static_assert(word_panels * code_columns <= gated_columns && int8_block % code_columns == 0);

// out[r][0..n) = c[r] + bias + residual for m rows from row r0 and columns from n0.
inline void finish(const MatmulBlock& b, int64_t n0, int64_t n, int64_t r0, int64_t m, const float* c,
                   int64_t ldc) {
    for (int64_t r = 0; r < m; ++r, c += ldc) {
        const float* residual = b.residual ? b.residual + (r0 + r) * b.residual_stride + n0 : nullptr;
        float* out = b.out + (r0 + r) * b.out_stride + n0;
        for (int64_t i = 0; i < n; i += lanes) {
            const int64_t count = n - i < lanes ? n - i : lanes;
            F v = load(c + i);
            if (b.bias) v = v + load_n(b.bias + n0 + i, count);
            if (residual) v = v + load_n(residual + i, count);
            store_n(out + i, v, count);
        }
    }
}

// Columns from n0 on as `groups` groups of `lanes` weight rows, one behind the other: they lie so, or are
// packed into `memory`.
inline const std::byte* packed_group(const MatmulBlock& b, int64_t n0, std::byte* memory,
                                     int64_t groups = 1) {
    if (b.packed) return b.w + n0 * b.w_stride;
    const auto bytes = static_cast<int64_t>(packed_group_bytes(*b.type, b.k));
    for (int64_t g = 0; g < groups; ++g, n0 += lanes) {
        const int64_t n = b.n - n0 < lanes ? b.n - n0 : lanes;
        pack_group(*b.type, b.w + n0 * b.w_stride, b.w_stride, n, b.k, memory + g * bytes);
    }
    return memory;
}

inline bool has_int8_path(const TypeInfo& type) { return type.layout && type.layout->bits > 0; }
