// What a product is made of beside tiles: its weights, and its rows of activations, which may come from a
// norm. A norm at the beginning of a product gives the bits of the norm by itself: both are norm.inl.

#include "ggml/cuda/norm.inl"

// One of the weights whose results lie side by side.
struct Segment {
    const std::byte* data;
    int64_t blocks;  // of 16 rows
    int32_t rows, first_col;
    View bias;
};

// The norm that x passes through on its way into the product.
struct RowNorm {
    bool on;
    float eps;
    View weight;
    View out;  // where the rows are wanted besides; may be absent
};

struct MatmulArgs {
    Segment segment[max_matmul_weights];
    int32_t segments;
    View x, residual, out;
    RowNorm norm;
    Activations prepared;
    TileTable table;
};

// Converts row r of x for column c; the whole block. One block of a launch `keeps` the normed row.
__device__ inline void prepare_row(const View& x, int64_t r, const RowNorm& norm, bool keeps,
                                   const Activations& to, int64_t c, float* partial) {
    const float* const in = x.row(r);
    if (!norm.on) return prepare_column([in](int i) { return in[i]; }, x.cols, to, c, partial);
    const float factor = norm_factor(in, x.cols, 0, norm.eps, partial);
    const auto value = [&](int i) {
        const float y = in[i] * factor;
        return norm.weight ? y * norm.weight.row(0)[i] : y;
    };
    if (keeps && norm.out)
        for (int i = thread_index(); i < x.cols; i += block_threads()) norm.out.row(r)[i] = value(i);
    prepare_column(value, x.cols, to, c, partial);
}

// The sum of a product as the result it stands for.
template <TileFormat f>
__device__ float scaled(float sum, const Activations& x, int64_t column, const std::byte* block, int64_t k,
                        int r) {
    return sum * x.inverse[column] * row_factor<f>(block, k, r);
}
