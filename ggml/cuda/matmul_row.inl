// How rows of activations, which may come from a norm, get ready for a product, and where its results go. A
// norm at the beginning of a product gives the bits of the norm by itself: both are norm.inl.

#include "ggml/cuda/norm.inl"

struct MatmulArgs : ProductArgs {
    Activations<8> prepared;
};

// Of the launch's weights, the one that row block `first` lies in if each begins at a multiple of `each`;
// `first` becomes the number within it.
__device__ inline int segment_at(const ProductArgs& a, int64_t each, int64_t& first) {
    int which = 0;
    const auto padded = [&](int w) { return (a.segment[w].blocks + each - 1) / each * each; };
    while (which + 1 < a.segments && first >= padded(which)) first -= padded(which++);
    return which;
}

__device__ inline void store(const ProductArgs& a, const Segment& s, int64_t row, int64_t column, float sum) {
    if (s.bias) sum += s.bias.row(0)[row];
    if (a.residual) sum += a.residual.row(column)[s.first_col + row];
    a.out.row(column)[s.first_col + row] = sum;
}

// The first fours of the norm's weight that a thread takes. They are constant, so they come while the launch
// still waits for its row; out of memory, for the weights of a model have passed through the cache since.
constexpr int norm_fours = 4;
struct NormAhead {
    Words4 weight[norm_fours];
};
__device__ inline NormAhead norm_ahead(const RowNorm& norm, int k) {
    NormAhead ahead{};
    const float* const weight = norm.on && norm.weight ? norm.weight.row(0) : nullptr;
    if (!weight || !in_fours(weight, k)) return ahead;
#pragma unroll
    for (int j = 0; j < norm_fours; ++j) {
        const int i = 4 * (j * block_threads() + thread_index());
        ahead.weight[j] = load16(weight + (i < k ? i : 0));
    }
    return ahead;
}

// A row on its way through the norm, as prepare_column() reads it.
struct NormedRow {
    static constexpr int at_once = norm_fours;
    struct Raw {
        Words4 x, weight;
    };
    const float *row, *weight;
    int k;
    float factor;
    const NormAhead& ahead;
    __device__ bool in_fours() const {
        return cuda::in_fours(row, k) && (!weight || cuda::in_fours(weight, k));
    }
    __device__ Raw load(int i, int j, bool first) const {
        const int at = i < k ? i : 0;
        Raw raw{four_words(row, at), ahead.weight[j]};
        if (!first && weight) raw.weight = four_words(weight, at);
        return raw;
    }
    __device__ void finish(const Raw& raw, int i, float (&v)[4]) const {
        for (int j = 0; j < 4; ++j) {
            const float normed = bits_float(raw.x.w[j]) * factor;
            v[j] = i >= k ? 0 : weight ? normed * bits_float(raw.weight.w[j]) : normed;
        }
    }
    __device__ void four(int i, float (&v)[4]) const {
        float w[4];
        read_four(row, k, i, v);
        if (weight) read_four(weight, k, i, w);
        for (int j = 0; j < 4; ++j) v[j] = weight ? v[j] * factor * w[j] : v[j] * factor;
    }
};

// Converts row r of x for column c; the whole block. One block of a launch `keeps` the normed row.
template <class To>
__device__ void prepare_row(const View& x, int64_t r, const RowNorm& norm, const NormAhead& ahead, bool keeps,
                            const To& to, int64_t c, float* partial) {
    const float* const in = x.row(r);
    if (!norm.on) return prepare_column(PlainRow{in, x.cols}, x.cols, to, c, partial);
    const NormedRow row{in, norm.weight ? norm.weight.row(0) : nullptr, x.cols,
                        norm_factor(in, x.cols, 0, norm.eps, partial), ahead};
    if (keeps && norm.out)
        for (int i = 4 * thread_index(); i < x.cols; i += 4 * block_threads()) {
            float v[4];
            if (row.in_fours())
                row.finish(row.load(i, 0, false), i, v);
            else
                row.four(i, v);
            for (int j = 0; j < 4 && i + j < x.cols; ++j) norm.out.row(r)[i + j] = v[j];
        }
    prepare_column(row, x.cols, to, c, partial);
}

// The sum of a product as the result it stands for.
template <TileFormat f, int width>
__device__ float scaled(float sum, const Activations<width>& x, int64_t column, const std::byte* block,
                        int64_t k, int r) {
    return sum * x.inverse[column] * row_factor<f>(block, k, r);
}

// Stores the results of a row block, fragments of 8 n rows of x from `column` on; the whole warp. What they
// need is read without conditions and some groups at a time, so that it is on its way together.
template <TileFormat f, int n>
__device__ void store_fragments(const ProductArgs& a, const Segment& s, int64_t block, int64_t column,
                                const float* inverse, const Sums<n>& sums) {
    constexpr int at_once = n < 4 ? n : 4;
    static_assert(n % at_once == 0);
    const int64_t row = 16 * block + lane() / 4, last_row = s.rows - 1, last_column = a.x.rows - 1;
    const auto row_of = [&](int half) { return row + 8 * half < last_row ? row + 8 * half : last_row; };
    float factor[2], bias[2] = {};
    for (int half = 0; half < 2; ++half) {
        factor[half] =
            row_factor<f>(s.data + row_of(half) / 16 * f.block_bytes(a.x.cols), a.x.cols, row_of(half) % 16);
        if (s.bias) bias[half] = s.bias.row(0)[row_of(half)];
    }
    const bool biased = static_cast<bool>(s.bias), added = static_cast<bool>(a.residual);
#pragma unroll
    for (int first = 0; first < n; first += at_once) {
        const auto column_of = [&](int i) {  // of the lane's 2 `at_once`
            return column + 8 * (first + i / 2) + lane() % 4 * 2 + i % 2;
        };
        float scale[2 * at_once], residual[2 * at_once][2] = {};
#pragma unroll
        for (int i = 0; i < 2 * at_once; ++i) {
            const int64_t c = column_of(i) < last_column ? column_of(i) : last_column;
            scale[i] = inverse[c];
            if (!added) continue;
            for (int half = 0; half < 2; ++half)
                residual[i][half] = a.residual.row(c)[s.first_col + row_of(half)];
        }
#pragma unroll
        for (int i = 0; i < 2 * at_once; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float sum = sums.d[first + i / 2][2 * half + i % 2] * scale[i] * factor[half];
                if (biased) sum += bias[half];
                if (added) sum += residual[i][half];
                if (row + 8 * half <= last_row && column_of(i) <= last_column)
                    a.out.row(column_of(i))[s.first_col + row + 8 * half] = sum;
            }
    }
}
