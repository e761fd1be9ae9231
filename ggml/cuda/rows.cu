// Kernels that work row by row or element by element: norm, rope_table, glu, activate, add, take_rows,
// copy_pages. Sums are taken in a fixed order, so a row does not depend on the rows beside it.
#include <algorithm>

#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"
#include "ggml/cuda/norm.inl"

constexpr int columns_per_thread = 4;  // of element-wise kernels
constexpr int columns_per_block = 256 * columns_per_thread;

// Calls put(row, column, value(row, column)) for the block's share of rows x cols: block x is a row, block y
// a run of columns. A thread has all its values before it puts the first, so that they come together.
template <class Value, class Put>
__device__ void for_columns(int32_t cols, const Value& value, const Put& put) {
    const int first = block_y() * columns_per_block;
    const int last = first + columns_per_block < cols ? first + columns_per_block : cols;
    const auto column = [&](int k) { return first + thread_index() + k * block_threads(); };
    decltype(value(block_x(), 0)) v[columns_per_thread];
#pragma unroll
    for (int k = 0; k < columns_per_thread; ++k)
        v[k] = value(block_x(), column(k) < last ? column(k) : last - 1);
#pragma unroll
    for (int k = 0; k < columns_per_thread; ++k)
        if (column(k) < last) put(block_x(), column(k), v[k]);
}

template <class Value>
__device__ void for_columns(const View& out, const Value& value) {
    for_columns(out.cols, value, [&](int64_t r, int c, float v) { out.row(r)[c] = v; });
}

Dims column_dims(int64_t rows, int64_t cols) {
    return {rows, static_cast<int32_t>(blocks_for(cols, columns_per_block)), 1, threads_for(cols)};
}

__global__ void glu_kernel(View x, View beside, View out, GluParams p) {
    wait_for_previous();
    const int of_gate = beside ? out.cols / x.cols : 1;
    for_columns(out, [&](int64_t r, int c) {
        return gated(p, x.row(r)[of_gate > 1 ? c / of_gate : c],
                     beside ? beside.row(r)[c] : x.row(r)[out.cols + c]);
    });
}

__device__ float xielu(const XieluParams& p, float x) {
    return (x > 0 ? p.alpha_p * x * x : p.alpha_n * (expm1f(x) - x)) + p.beta * x;
}

__global__ void activate_kernel(View x, View out, ActivateParams p) {
    wait_for_previous();
    for_columns(out, [&](int64_t r, int c) {
        const float u = p.in_scale * x.row(r)[c];
        return p.out_scale * (p.act == Activation::xielu ? xielu(p.xielu, u) : activated(p.act, u));
    });
}

__global__ void add_kernel(View x, View y, View out, float scale) {
    wait_for_previous();
    for_columns(out, [&](int64_t r, int c) { return x.row(r)[c] + scale * y.row(y.rows == 1 ? 0 : r)[c]; });
}

struct Taken {
    View x, out;
};
// Block z: of which tensor.
__global__ void take_rows_kernel(Taken first, Taken second, View rows) {
    wait_for_previous();
    const Taken& t = block_z() == 0 ? first : second;
    const int64_t from = *rows.row<int32_t>(block_x());
    const bool there = from >= 0 && from < t.x.rows;
    for_columns(t.out, [&](int64_t, int c) { return there ? t.x.row(from)[c] : 0; });
}

__global__ void scale_by_position_kernel(View x, View positions, View out, PositionScaleParams p) {
    wait_for_previous();
    const auto periods = static_cast<float>(*positions.row<int32_t>(block_x()) / p.period);
    const float scale = 1 + p.beta * logf(1 + periods);
    for_columns(out, [&](int64_t r, int c) { return scale * x.row(r)[c]; });
}

__global__ void splice_heads_kernel(View x, View behind, View out, SpliceParams p) {
    wait_for_previous();
    const int x_cols = x.cols / p.n_heads, b_cols = behind.cols / p.n_heads, cols = p.a_count + b_cols;
    for_columns(out, [&](int64_t r, int c) {
        const int head = c / cols, i = c % cols;
        return i < p.a_count ? x.row(r)[head * x_cols + p.a_first + i]
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
    for_columns(
        static_cast<int32_t>(page_bytes / 2), [&](int64_t, int c) { return src[c]; },
        [&](int64_t, int c, uint16_t v) { dst[c] = v; });
}

struct NormArgs {
    View x, weight, bias, residual, out;
    NormParams p;
    int32_t group, groups;
    View gate = {};  // of a unit that the results go through, if there is one
    GluParams unit = {};
};

// What a thread has of a row: fours that are `apart` columns from each other.
template <bool fours, int at_once>
struct NormColumns {
    float v[at_once][4];
    template <bool constant = false>
    __device__ void read(const float* row, int n, int first, int apart) {
#pragma unroll
        for (int j = 0; j < at_once; ++j) norm_columns<fours, constant>(row, n, first + j * apart, v[j]);
    }
};

// Block x: a row; y: a group of its columns or, where that is no more than a warp has on their way, one for
// each warp. All that is read is on its way at once; weights, which are constant, even before the row is
// there. Groups of more columns than a block has on their way are read again, what is behind those.
template <bool of_warp, bool fours, int at_once>
__global__ void __launch_bounds__(norm_threads) norm_kernel(NormArgs a) {
    const int in_group = of_warp ? lane() : thread_index();
    const int g = of_warp ? block_y() * (block_threads() / 32) + warp_index() : block_y();
    const int n = a.group, at = g < a.groups ? g * n : 0, at_weight = a.p.by_column ? at : 0;
    const int apart = 4 * (of_warp ? 32 : norm_threads), round = at_once * apart, own = 4 * in_group;
    NormColumns<fours, at_once> x, weight{}, bias{}, residual{}, gate{};
    if (a.weight) weight.template read<true>(a.weight.row(0) + at_weight, n, own, apart);
    if (a.bias) bias.template read<true>(a.bias.row(0) + at_weight, n, own, apart);
    wait_for_previous();
    auto* const partial = reinterpret_cast<float*>(shared_memory());
    const int64_t r = block_x();
    const float* const in = a.x.row(r) + at;
    x.read(in, n, own, apart);
    if (a.residual) residual.read(a.residual.row(r) + at, n, own, apart);
    if (a.gate) gate.read(a.gate.row(r) + at, n, own, apart);

    // The sum over the group of what `add` makes of a sum and four more columns.
    const auto sum_of = [&](const auto& add) {
        float sum = 0;
        if constexpr (of_warp) {
            float part[at_once];
#pragma unroll
            for (int j = 0; j < at_once; ++j) part[j] = warp_sum(add(0.0f, x.v[j], own + j * apart));
            for (const float one : part) sum += one;  // as warps of a block are added
            return sum;
        } else {
#pragma unroll
            for (int j = 0; j < at_once; ++j) sum = add(sum, x.v[j], own + j * apart);
            for (int first = own + round; first < n; first += round) {
                NormColumns<fours, at_once> more;
                more.read(in, n, first, apart);
#pragma unroll
                for (int j = 0; j < at_once; ++j) sum = add(sum, more.v[j], first + j * apart);
            }
            return block_sum(sum, partial);
        }
    };
    float mean = 0;
    if (a.p.subtract_mean) {
        const auto add = [&](float sum, const float(&v)[4], int c) {
            for (int j = 0; j < 4; ++j)
                if (c + (fours ? 0 : j) < n) sum += v[j];
            return sum;
        };
        mean = sum_of(add) / static_cast<float>(n);
    }
    const auto add_squares = [&](float sum, const float(&v)[4], int c) {
        return with_squares<fours>(sum, v, n, c, mean);
    };
    const float factor = factor_of_squares(sum_of(add_squares), n, a.p.eps);
    if (g >= a.groups) return;
    float* const out = a.out.row(r) + at;
    for (int first = own; first < n; first += round) {
        if (first >= round) {
            x.read(in, n, first, apart);
            if (a.weight) weight.template read<true>(a.weight.row(0) + at_weight, n, first, apart);
            if (a.bias) bias.template read<true>(a.bias.row(0) + at_weight, n, first, apart);
            if (a.residual) residual.read(a.residual.row(r) + at, n, first, apart);
            if (a.gate) gate.read(a.gate.row(r) + at, n, first, apart);
        }
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
            const int c = first + j * apart;
            float y[4];
            for (int k = 0; k < 4; ++k) {
                y[k] = (x.v[j][k] - mean) * factor;
                if (a.weight) y[k] *= weight.v[j][k];
                if (a.bias) y[k] += bias.v[j][k];
                if (a.residual) y[k] += residual.v[j][k];
                if (a.gate) y[k] = gated(a.unit, gate.v[j][k], y[k]);
            }
            if (c >= n) break;
            if constexpr (fours)
                *reinterpret_cast<Words4*>(out + c) = words_of(y);
            else
                for (int k = 0; k < 4 && c + k < n; ++k) out[c + k] = y[k];
        }
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
    const Taken taken{a.in[0], out};
    launch(take_rows_kernel, column_dims(out.rows, out.cols), *e.stream, taken, taken, a.in[1]);
}

// The same rows of two tensors.
size_t run_joined_take_rows(const Exec& e, std::span<const BoundInstr> instrs) {
    if (!is_at(instrs, 0, take_rows_op) || !is_at(instrs, 1, take_rows_op)) return 0;
    const OpArgs a = instrs[0].args(), b = instrs[1].args();
    const Tensor &first = a.out[0], &second = b.out[0];
    if (a.in[1].data != b.in[1].data || first.rows != second.rows || overlap(first, b.in[0]) ||
        overlap(second, a.in[0]) || overlap(first, second))
        return 0;
    Dims dims = column_dims(first.rows, std::max(first.cols, second.cols));
    dims.z = 2;
    launch(take_rows_kernel, dims, *e.stream, Taken{a.in[0], first}, Taken{b.in[0], second}, a.in[1]);
    return 2;
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

namespace {

NormArgs norm_args(const OpArgs& a) {
    const auto& p = a.params->as<NormParams>();
    const auto group = static_cast<int32_t>(p.group ? p.group : a.out[0].cols);
    return {a.in[0],  a.in[1], a.in[2], a.in[3],
            a.out[0], p,       group,   static_cast<int32_t>(a.out[0].cols / group)};
}

// Whether each row can be read or written four columns at once.
bool in_fours(const View& v) {
    return (reinterpret_cast<uintptr_t>(v.data) | static_cast<uintptr_t>(v.stride)) % sizeof(Words4) == 0;
}

void launch_norm(const Exec& e, const NormArgs& a) {
    const int32_t group = a.group;
    bool fours = group % 4 == 0;
    for (const View& v : {a.x, a.weight, a.bias, a.residual, a.gate, a.out}) fours = fours && in_fours(v);
    const auto run = [&]<bool of_warp, int at_once>(const Dims& dims) {
        launch(fours ? norm_kernel<of_warp, true, at_once> : norm_kernel<of_warp, false, at_once>, dims,
               *e.stream, a);
    };
    constexpr int32_t warp_columns = 4 * 32;
    if (group <= warp_columns * norm_at_once) {
        const int32_t warps = std::min(a.groups, norm_threads / 32);
        const Dims dims{a.out.rows, static_cast<int32_t>(blocks_for(a.groups, warps)), 1, 32 * warps};
        if (group <= warp_columns) return run.template operator()<true, 1>(dims);
        return run.template operator()<true, norm_at_once>(dims);
    }
    const int32_t threads = threads_for(blocks_for(group, 4), norm_threads);
    run.template operator()<false, norm_at_once>(
        {a.out.rows, a.groups, 1, threads, static_cast<size_t>(threads) / 32 * sizeof(float)});
}

}  // namespace

void run_norm(const Exec& e, const OpArgs& a, std::span<std::byte>) { launch_norm(e, norm_args(a)); }

size_t run_joined_norm(const Exec& e, std::span<const BoundInstr> instrs) {
    if (!is_at(instrs, 0, norm_op) || !is_at(instrs, 1, glu_op) || instrs[0].instr->read_until != 1) return 0;
    const OpArgs norm = instrs[0].args(), unit = instrs[1].args();
    const Tensor &gate = unit.in[0], &out = unit.out[0];
    if (unit.in[1].data != norm.out[0].data || gate.cols != out.cols || out.rows != norm.out[0].rows ||
        overlap(gate, out) || std::ranges::any_of(norm.in, [&](const Tensor& t) { return overlap(t, out); }))
        return 0;
    NormArgs args = norm_args(norm);
    args.out = out, args.gate = gate, args.unit = unit.params->as<GluParams>();
    launch_norm(e, args);
    return 2;
}

void run_rope_table(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor &positions = a.in[0], &inv_freq = a.in[1], &out = a.out[0];
    launch(rope_table_kernel, Dims{out.rows, 1, 1, threads_for(inv_freq.cols)}, *e.stream, positions,
           inv_freq, out, a.params->as<RopeTableParams>().magnitude);
}

}  // namespace nibble::cuda
