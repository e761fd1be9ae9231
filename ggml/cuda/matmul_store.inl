// How the sums of a product become its results: scaled back, with bias and residual, or two of them as a
// gated unit.

// The sum of a product as the result it stands for.
template <TileFormat f, int width>
__device__ float scaled(float sum, const Activations<width>& x, int64_t column, const std::byte* block,
                        int64_t k, int r) {
    return sum * x.inverse[column] * row_factor<f>(block, k, r);
}

__device__ inline void store(const ProductArgs& a, const Segment& s, int64_t row, int64_t column, float sum) {
    if (s.bias) sum += s.bias.row(0)[row];
    if (a.residual) sum += a.residual.row(column)[s.first_col + row];
    a.out.row(column)[s.first_col + row] = sum;
}

// What the lane's two rows of a row block need, g and g + 8; rows behind the last are the last.
template <TileFormat f>
struct FragmentRows {
    int64_t first, last;
    float factor[2], bias[2] = {};

    __device__ FragmentRows(const Segment& s, int64_t block, int64_t k)
        : first(16 * block + lane() / 4), last(s.rows - 1) {
        for (int half = 0; half < 2; ++half) {
            factor[half] = row_factor<f>(s.data + row(half) / 16 * f.block_bytes(k), k, row(half) % 16);
            if (s.bias) bias[half] = s.bias.row(0)[row(half)];
        }
    }
    __device__ bool has(int half) const { return first + 8 * half <= last; }
    __device__ int64_t row(int half) const { return has(half) ? first + 8 * half : last; }
};

// What its columns need, rows of x: two of each of n groups, number i being c = i % 2 of group i / 2.
template <int n>
struct FragmentColumns {
    int64_t first, last;
    float scale[2 * n];

    __device__ FragmentColumns(int64_t column, int64_t rows, const float* inverse)
        : first(column + lane() % 4 * 2), last(rows - 1) {
#pragma unroll
        for (int i = 0; i < 2 * n; ++i) scale[i] = inverse[column_of(i)];
    }
    __device__ bool has(int i) const { return first + i / 2 * 8 + i % 2 <= last; }
    __device__ int64_t column_of(int i) const { return has(i) ? first + i / 2 * 8 + i % 2 : last; }
};

// Stores the results of a row block, fragments of 8 n rows of x from `column` on; the whole warp. What they
// need is read without conditions and some groups at a time, so that it is on its way together.
template <TileFormat f, int n>
__device__ void store_fragments(const ProductArgs& a, const Segment& s, int64_t block, int64_t column,
                                const float* inverse, const Sums<n>& sums) {
    constexpr int at_once = n < 4 ? n : 4;
    static_assert(n % at_once == 0);
    const FragmentRows<f> rows(s, block, a.x.cols);
    const bool biased = static_cast<bool>(s.bias), added = static_cast<bool>(a.residual);
#pragma unroll
    for (int first = 0; first < n; first += at_once) {
        const FragmentColumns<at_once> columns(column + 8 * first, a.x.rows, inverse);
        float residual[2 * at_once][2] = {};
        if (added)
#pragma unroll
            for (int i = 0; i < 2 * at_once; ++i)
                for (int half = 0; half < 2; ++half)
                    residual[i][half] = a.residual.row(columns.column_of(i))[s.first_col + rows.row(half)];
#pragma unroll
        for (int i = 0; i < 2 * at_once; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float sum = sums.d[first + i / 2][2 * half + i % 2] * columns.scale[i] * rows.factor[half];
                if (biased) sum += rows.bias[half];
                if (added) sum += residual[i][half];
                if (rows.has(half) && columns.has(i))
                    a.out.row(columns.column_of(i))[s.first_col + rows.row(half)] = sum;
            }
    }
}

// The same for what a gated unit makes of the products with two weights.
template <TileFormat f, int n>
__device__ void store_gated_fragments(const ProductArgs& a, const GluParams& p, const View& out,
                                      int64_t block, int64_t column, const float* inverse,
                                      const Sums<n> (&sums)[2]) {
    constexpr int at_once = 4;
    static_assert(n % at_once == 0);
    const FragmentRows<f> rows[2] = {{a.segment[0], block, a.x.cols}, {a.segment[1], block, a.x.cols}};
#pragma unroll
    for (int first = 0; first < n; first += at_once) {
        const FragmentColumns<at_once> columns(column + 8 * first, a.x.rows, inverse);
#pragma unroll
        for (int i = 0; i < 2 * at_once; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float value[2];
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    value[s] =
                        sums[s].d[first + i / 2][2 * half + i % 2] * columns.scale[i] * rows[s].factor[half];
                    if (a.segment[s].bias) value[s] += rows[s].bias[half];
                }
                if (rows[0].has(half) && columns.has(i))
                    out.row(columns.column_of(i))[rows[0].row(half)] = gated(p, value[0], value[1]);
            }
    }
}
