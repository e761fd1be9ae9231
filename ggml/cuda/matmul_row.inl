// How rows of activations, which may come from a norm or a gated unit, get ready for a product. Either gives
// the bits of the norm or the unit by itself: they are norm.inl and gated.inl.

#include "ggml/cuda/matmul_store.inl"
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

// What a unit makes of the halves of a row, as prepare_column() reads it.
template <Activation act>
struct GatedRow {
    static constexpr int at_once = 4;
    struct Raw {
        Words4 gate, up;
    };
    const float *gate, *up;
    int k;
    const GluParams& params;
    __device__ bool in_fours() const { return cuda::in_fours(gate, k) && cuda::in_fours(up, k); }
    __device__ Raw load(int i, int /*j*/, bool /*first*/) const {
        const int at = i < k ? i : 0;
        return {four_words(gate, at), four_words(up, at)};
    }
    __device__ void finish(const Raw& raw, int i, float (&v)[4]) const {
        for (int j = 0; j < 4; ++j)
            v[j] = i < k ? gated_as<act>(params, bits_float(raw.gate.w[j]), bits_float(raw.up.w[j])) : 0;
    }
    __device__ void four(int i, float (&v)[4]) const {
        float g[4], u[4];
        read_four(gate, k, i, g);
        read_four(up, k, i, u);
        for (int j = 0; j < 4; ++j) v[j] = i + j < k ? gated_as<act>(params, g[j], u[j]) : 0;
    }
};

// Block x: a row of x.
template <class To>
__global__ void prepare_kernel(View x, RowNorm norm, To to) {
    const NormAhead ahead = norm_ahead(norm, x.cols);
    wait_for_previous();
    prepare_row(x, block_x(), norm, ahead, true, to, block_x(), reinterpret_cast<float*>(shared_memory()));
}

// Block x: a row that is the result of a unit.
constexpr int most_gated_threads = 1024;
template <class To, Activation act>
__global__ void __launch_bounds__(most_gated_threads) prepare_gated_kernel(RowUnit unit, To to) {
    wait_for_previous();
    const int k = unit.x.cols / 2;
    const float* const row = unit.x.row(block_x());
    prepare_column(GatedRow<act>{row, row + k, k, unit.params}, k, to, block_x(),
                   reinterpret_cast<float*>(shared_memory()));
}

template <class To>
void prepare_rows(const Exec& e, const ProductArgs& a, const To& to) {
    Dims dims{a.x.rows, 1, 1, 256, 8 * sizeof(float)};
    if (!a.unit.on) return launch(prepare_kernel<To>, dims, *e.stream, a.x, a.norm, to);
    // Threads enough to keep a long row, which is read twice otherwise.
    const int64_t at_once = 4 * GatedRow<Activation::silu>::at_once;  // columns of a thread
    while (dims.threads < most_gated_threads && dims.threads * at_once < a.x.cols) dims.threads *= 2;
    dims.shared = static_cast<size_t>(dims.threads) / 32 * sizeof(float);
    if (a.unit.params.act == Activation::silu)
        launch(prepare_gated_kernel<To, Activation::silu>, dims, *e.stream, a.unit, to);
    else
        launch(prepare_gated_kernel<To, Activation::gelu_tanh>, dims, *e.stream, a.unit, to);
}
