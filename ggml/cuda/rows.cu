// Kernels that work row by row or element by element: norm, rope_table, glu, activate, add, take_rows,
// copy_pages. Sums are taken in a fixed order, so a row does not depend on the rows beside it.
#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"
#include "ggml/cuda/norm.inl"

constexpr int columns_per_block = 1024;  // of element-wise kernels, by 256 threads

// Calls fn(row, column) for the block's share of rows x cols: block x is a row, block y a run of columns.
template <class Fn>
__device__ void for_columns(int32_t cols, const Fn& fn) {
    const int first = block_y() * columns_per_block;
    const int last = first + columns_per_block < cols ? first + columns_per_block : cols;
    for (int c = first + thread_index(); c < last; c += block_threads()) fn(block_x(), c);
}

Dims column_dims(int64_t rows, int64_t cols) {
    return {rows, static_cast<int32_t>(blocks_for(cols, columns_per_block)), 1, threads_for(cols)};
}

__global__ void glu_kernel(View x, View beside, View out, GluParams p) {
    wait_for_previous();
    const int of_gate = beside ? out.cols / x.cols : 1;
    for_columns(out.cols, [&](int64_t r, int c) {
        out.row(r)[c] = gated(p, x.row(r)[of_gate > 1 ? c / of_gate : c],
                              beside ? beside.row(r)[c] : x.row(r)[out.cols + c]);
    });
}

__device__ float xielu(const XieluParams& p, float x) {
    return (x > 0 ? p.alpha_p * x * x : p.alpha_n * (expm1f(x) - x)) + p.beta * x;
}

__global__ void activate_kernel(View x, View out, ActivateParams p) {
    wait_for_previous();
    for_columns(out.cols, [&](int64_t r, int c) {
        const float u = p.in_scale * x.row(r)[c];
        out.row(r)[c] = p.out_scale * (p.act == Activation::xielu ? xielu(p.xielu, u) : activated(p.act, u));
    });
}

__global__ void add_kernel(View x, View y, View out, float scale) {
    wait_for_previous();
    for_columns(out.cols, [&](int64_t r, int c) {
        out.row(r)[c] = x.row(r)[c] + scale * y.row(y.rows == 1 ? 0 : r)[c];
    });
}

__global__ void take_rows_kernel(View x, View rows, View out) {
    wait_for_previous();
    for_columns(out.cols, [&](int64_t r, int c) {
        const int64_t from = *rows.row<int32_t>(r);
        out.row(r)[c] = from < 0 || from >= x.rows ? 0 : x.row(from)[c];
    });
}

__global__ void scale_by_position_kernel(View x, View positions, View out, PositionScaleParams p) {
    wait_for_previous();
    const auto periods = static_cast<float>(*positions.row<int32_t>(block_x()) / p.period);
    const float scale = 1 + p.beta * logf(1 + periods);
    for_columns(out.cols, [&](int64_t r, int c) { out.row(r)[c] = scale * x.row(r)[c]; });
}

__global__ void splice_heads_kernel(View x, View behind, View out, SpliceParams p) {
    wait_for_previous();
    const int x_cols = x.cols / p.n_heads, b_cols = behind.cols / p.n_heads, cols = p.a_count + b_cols;
    for_columns(out.cols, [&](int64_t r, int c) {
        const int head = c / cols, i = c % cols;
        out.row(r)[c] = i < p.a_count ? x.row(r)[head * x_cols + p.a_first + i]
                                      : behind.row(r)[head * b_cols + i - p.a_count];
    });
}

// Block x copies a pair, block y a run of its words; quantized rows are a multiple of two bytes.
__global__ void copy_pages_kernel(View cache, View pairs, int64_t page_bytes, int64_t pages) {
    wait_for_previous();
    const int64_t from = pairs.row<int32_t>(block_x())[0], to = pairs.row<int32_t>(block_x())[1];
    if (from < 0 || from >= pages || to < 0 || to >= pages || from == to) return;
    const auto* src = reinterpret_cast<const uint16_t*>(cache.data + from * page_bytes);
    auto* dst = reinterpret_cast<uint16_t*>(cache.data + to * page_bytes);
    for_columns(static_cast<int32_t>(page_bytes / 2), [&](int64_t, int c) { dst[c] = src[c]; });
}

// One block per row (x) and group of columns (y).
__global__ void norm_kernel(View x, View weight, View bias, View residual, View out, NormParams p,
                            int32_t group) {
    wait_for_previous();
    auto* const partial = reinterpret_cast<float*>(shared_memory());
    const int64_t r = block_x();
    const int first = block_y() * group, of_weight = p.by_column ? first : 0;
    const float* const in = x.row(r) + first;
    float mean = 0;
    if (p.subtract_mean) {
        float sum = 0;
        for (int i = thread_index(); i < group; i += block_threads()) sum += in[i];
        mean = block_sum(sum, partial) / static_cast<float>(group);
    }
    const float scale = norm_factor(in, group, mean, p.eps, partial);
    for (int i = thread_index(); i < group; i += block_threads()) {
        float y = (in[i] - mean) * scale;
        if (weight) y *= weight.row(0)[of_weight + i];
        if (bias) y += bias.row(0)[of_weight + i];
        if (residual) y += residual.row(r)[first + i];
        out.row(r)[first + i] = y;
    }
}

__global__ void rope_table_kernel(View positions, View inv_freq, View out, float magnitude) {
    wait_for_previous();
    const double position = *positions.row<int32_t>(block_x());
    for (int i = thread_index(); i < inv_freq.cols; i += block_threads()) {
        const double angle = position * static_cast<double>(inv_freq.row(0)[i]);
        out.row(block_x())[2 * i] = static_cast<float>(cos(angle) * static_cast<double>(magnitude));
        out.row(block_x())[2 * i + 1] = static_cast<float>(sin(angle) * static_cast<double>(magnitude));
    }
}

}  // namespace

void run_glu(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor& out = a.out[0];
    launch(glu_kernel, column_dims(out.rows, out.cols), *e.stream, a.in[0], a.in[1], out,
           a.params->as<GluParams>());
}

void run_activate(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor& out = a.out[0];
    launch(activate_kernel, column_dims(out.rows, out.cols), *e.stream, a.in[0], out,
           a.params->as<ActivateParams>());
}

void run_add(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor& out = a.out[0];
    launch(add_kernel, column_dims(out.rows, out.cols), *e.stream, a.in[0], a.in[1], out,
           a.params->as<AddParams>().scale);
}

void run_take_rows(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor& out = a.out[0];
    launch(take_rows_kernel, column_dims(out.rows, out.cols), *e.stream, a.in[0], a.in[1], out);
}

void run_scale_by_position(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor& out = a.out[0];
    launch(scale_by_position_kernel, column_dims(out.rows, out.cols), *e.stream, a.in[0], a.in[1], out,
           a.params->as<PositionScaleParams>());
}

void run_splice_heads(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor& out = a.out[0];
    launch(splice_heads_kernel, column_dims(out.rows, out.cols), *e.stream, a.in[0], a.in[1], out,
           a.params->as<SpliceParams>());
}

void run_copy_pages(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor &cache = a.in[0], &pairs = a.in[1];
    const int64_t page_rows = a.params->as<CopyPagesParams>().page_rows;
    const int64_t page_bytes = page_rows * cache.stride;
    launch(copy_pages_kernel, column_dims(pairs.rows, page_bytes / 2), *e.stream, cache, pairs, page_bytes,
           cache.rows / page_rows);
}

void run_norm(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const auto& p = a.params->as<NormParams>();
    const Tensor& out = a.out[0];
    const auto group = static_cast<int32_t>(p.group ? p.group : out.cols);
    const int32_t threads = threads_for(group, norm_threads);
    const Dims dims{out.rows, static_cast<int32_t>(out.cols / group), 1, threads,
                    static_cast<size_t>(threads) / 32 * sizeof(float)};
    launch(norm_kernel, dims, *e.stream, a.in[0], a.in[1], a.in[2], a.in[3], out, p, group);
}

void run_rope_table(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor &positions = a.in[0], &inv_freq = a.in[1], &out = a.out[0];
    launch(rope_table_kernel, Dims{out.rows, 1, 1, threads_for(inv_freq.cols)}, *e.stream, positions,
           inv_freq, out, a.params->as<RopeTableParams>().magnitude);
}

}  // namespace nibble::cuda
