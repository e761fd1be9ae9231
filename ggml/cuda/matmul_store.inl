// How the sums of a product become its results: scaled back, with bias and residual, or two of them as a
// gated unit. Before that the sums of columns that were cut into runs, each some warp's, come together.

// Leaves the fragments of run `run`, to be read by whoever is the last to leave one of the `runs` (true); the
// whole warp. `partial`: [run][8 rows of x][lane]; `done`: how many have been left, for the last to set back.
template <int n>
__device__ bool leave_run(Words4* partial, int run, int runs, int* done, const Sums<n>& sums) {
#pragma unroll
    for (int i = 0; i < n; ++i) partial[(run * n + i) * 32 + lane()] = words_of(sums.d[i]);
    sync_warp();
    int before = 0;
    if (lane() == 0) {
        before = atomic_add_release(done, 1);
        if (before == runs - 1) fence();  // not for every run: it would empty the cache that x is in
    }
    const bool last = shuffle(before, 0) == runs - 1;
    if (last) sync_warp();
    return last;
}

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

// The lane's two rows of a row block, g and g + 8, and what they need. `whole`: rows that are not there do
// not occur; otherwise they are the last. `block_bytes`: of a row block, which ends in the rows' factors.
template <bool whole>
struct FragmentRows {
    int64_t first, last;
    float factor[2], bias[2] = {};

    __device__ FragmentRows(const Segment& s, int64_t block, int64_t block_bytes)
        : first(16 * block + lane() / 4), last(s.rows - 1) {
        for (int half = 0; half < 2; ++half) {
            const std::byte* const end = s.data + (row(half) / 16 + 1) * block_bytes;
            factor[half] = reinterpret_cast<const float*>(end)[row(half) % 16 - 16];
            if (s.bias) bias[half] = s.bias.row(0)[row(half)];
        }
    }
    __device__ bool has(int half) const { return whole || first + 8 * half <= last; }
    __device__ int64_t row(int half) const { return has(half) ? first + 8 * half : last; }
    __device__ int from_first(int half) const {
        return whole ? 8 * half : static_cast<int>(row(half) - first);
    }
};

// The lane's columns, rows of x: 2t and the next of each group of eight from `column` on.
template <bool whole>
struct FragmentColumns {
    int first, last;
    const float* inverse;  // from the first on

    __device__ FragmentColumns(int64_t column, int64_t rows, const float* inv)
        : first(static_cast<int>(column) + lane() % 4 * 2),
          last(static_cast<int>(rows) - 1),
          inverse(inv + first) {}
    __device__ bool has(int group, int c) const { return whole || first + 8 * group + c <= last; }
    __device__ int column(int group, int c) const { return has(group, c) ? first + 8 * group + c : last; }
    // What takes a group's sums back: there are numbers for all eight columns of a group that has one.
    __device__ void scales(int group, float (&scale)[2]) const {
        const int at = whole ? 8 * group : column(group, 0) / 2 * 2 - first;
        const Words2 w = *reinterpret_cast<const Words2*>(inverse + at);
        for (int c = 0; c < 2; ++c) scale[c] = bits_float(w.w[c]);
    }
};

// The lane's cells of a matrix of activations: pointers to its first row. Columns of a block are less than
// 2^31 bytes apart, so that the address of one takes one instruction.
template <bool whole>
struct FragmentCells {
    FragmentColumns<whole> columns;
    std::byte* first;
    int32_t stride;

    __device__ FragmentCells(const View& v, const FragmentColumns<whole>& c, int64_t row)
        : columns(c),
          first(v.data + c.first * v.stride + row * static_cast<int64_t>(sizeof(float))),
          stride(static_cast<int32_t>(v.stride)) {}
    __device__ float* operator()(int group, int c) const {
        const int i = whole ? 8 * group + c : columns.column(group, c) - columns.first;
        return reinterpret_cast<float*>(first + int64_t{stride} * i);
    }
};

// Whether all of a row block and of 8 n columns is there.
__device__ inline bool all_there(const ProductArgs& a, const Segment& s, int64_t block, int64_t column,
                                 int n) {
    return 16 * (block + 1) <= s.rows && column + 8 * n <= a.x.rows;
}

template <bool whole, int n>
__device__ void write_fragments(const ProductArgs& a, const Segment& s, int64_t block_bytes, int64_t block,
                                int64_t column, const float* inverse, const Sums<n>& sums) {
    constexpr int at_once = n >= 32 ? 8 : n < 4 ? n : 4;
    static_assert(n % at_once == 0);
    const FragmentRows<whole> rows(s, block, block_bytes);
    const FragmentColumns<whole> columns(column, a.x.rows, inverse);
    const int64_t row = s.first_col + rows.first;
    const bool biased = static_cast<bool>(s.bias), added = static_cast<bool>(a.residual);
    const FragmentCells<whole> out(a.out, columns, row), residual(added ? a.residual : a.out, columns, row);
#pragma unroll
    for (int first = 0; first < n; first += at_once) {
        float scale[at_once][2], add[at_once][2][2] = {};
#pragma unroll
        for (int j = 0; j < at_once; ++j) columns.scales(first + j, scale[j]);
        if (added)
#pragma unroll
            for (int j = 0; j < at_once; ++j)
#pragma unroll
                for (int c = 0; c < 2; ++c)
                    for (int half = 0; half < 2; ++half)
                        add[j][c][half] = residual(first + j, c)[rows.from_first(half)];
#pragma unroll
        for (int j = 0; j < at_once; ++j)
#pragma unroll
            for (int c = 0; c < 2; ++c)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float sum = sums.d[first + j][2 * half + c] * scale[j][c] * rows.factor[half];
                    if (biased) sum += rows.bias[half];
                    if (added) sum += add[j][c][half];
                    if (rows.has(half) && columns.has(first + j, c))
                        out(first + j, c)[rows.from_first(half)] = sum;
                }
    }
}

// Stores the results of a row block, fragments of 8 n rows of x from `column` on; the whole warp. What they
// need is read without conditions and some groups at a time, so that it is on its way together.
template <int n>
__device__ void store_fragments(const ProductArgs& a, const Segment& s, int64_t block_bytes, int64_t block,
                                int64_t column, const float* inverse, const Sums<n>& sums) {
    if (all_there(a, s, block, column, n))
        write_fragments<true>(a, s, block_bytes, block, column, inverse, sums);
    else
        write_fragments<false>(a, s, block_bytes, block, column, inverse, sums);
}
template <TileFormat f, int n>
__device__ void store_fragments(const ProductArgs& a, const Segment& s, int64_t block, int64_t column,
                                const float* inverse, const Sums<n>& sums) {
    store_fragments(a, s, f.block_bytes(a.x.cols), block, column, inverse, sums);
}

template <bool whole, Activation act, int n>
__device__ void write_gated_fragments(const ProductArgs& a, const UnitArgs& unit, int64_t block_bytes,
                                      int64_t block, int64_t column, const float* inverse,
                                      const Sums<n> (&sums)[2]) {
    const FragmentRows<whole> rows[2] = {{a.segment[0], block, block_bytes},
                                         {a.segment[1], block, block_bytes}};
    const FragmentColumns<whole> columns(column, a.x.rows, inverse);
    const FragmentCells<whole> out(unit.out, columns, rows[0].first);
#pragma unroll
    for (int j = 0; j < n; ++j) {
        float scale[2];
        columns.scales(j, scale);
#pragma unroll
        for (int c = 0; c < 2; ++c)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float value[2];
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    value[s] = sums[s].d[j][2 * half + c] * scale[c] * rows[s].factor[half];
                    if (a.segment[s].bias) value[s] += rows[s].bias[half];
                }
                if (rows[0].has(half) && columns.has(j, c))
                    out(j, c)[rows[0].from_first(half)] = gated_as<act>(unit.params, value[0], value[1]);
            }
    }
}

// The same for what a gated unit makes of the products with two weights; fits_unit() says which.
template <TileFormat f, int n>
__device__ void store_gated_fragments(const ProductArgs& a, const UnitArgs& unit, int64_t block,
                                      int64_t column, const float* inverse, const Sums<n> (&sums)[2]) {
    const bool whole = all_there(a, a.segment[0], block, column, n);
    const int64_t bytes = f.block_bytes(a.x.cols);
    constexpr Activation silu = Activation::silu, gelu = Activation::gelu_tanh;
    if (unit.params.act == silu && whole)
        write_gated_fragments<true, silu>(a, unit, bytes, block, column, inverse, sums);
    else if (unit.params.act == silu)
        write_gated_fragments<false, silu>(a, unit, bytes, block, column, inverse, sums);
    else if (whole)
        write_gated_fragments<true, gelu>(a, unit, bytes, block, column, inverse, sums);
    else
        write_gated_fragments<false, gelu>(a, unit, bytes, block, column, inverse, sums);
}
