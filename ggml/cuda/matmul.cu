// matmul on the GPU: tiles of any format times f32 activations, with bias and residual.
// A row's result depends, to the last bit, on that row and the shape of the weight alone.
#include <algorithm>

#include "ggml/base/checked.h"
#include "ggml/cuda/exec.h"
#include "ggml/cuda/tiles.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/matmul.inl"

// One of the weights whose results lie side by side.
struct Segment {
    const std::byte* data;
    int64_t blocks;  // of 16 rows
    int32_t rows, first_col;
    View bias;
};

struct MatmulArgs {
    Segment segment[max_matmul_weights];
    int32_t segments;
    View x, residual, out;
    Activations prepared;
    TileTable table;
};

__global__ void prepare_kernel(View x, Activations to) {
    prepare_column(x.row(block_x()), x.cols, to, block_x(), reinterpret_cast<float*>(shared_memory()));
}

__device__ inline void store(const MatmulArgs& a, const Segment& s, int64_t row, int64_t column, float sum) {
    if (s.bias) sum += s.bias.row(0)[row];
    if (a.residual) sum += a.residual.row(column)[s.first_col + row];
    a.out.row(column)[s.first_col + row] = sum;
}

// Block x: 16 rows of one of the weights; block y: 8 n rows of x. With `alone`, x has one row and the block
// converts it itself, which saves a launch; the bits are the same.
template <uint32_t code, int n, bool alone>
__global__ void __launch_bounds__(256) matmul_kernel(MatmulArgs a) {
    constexpr TileFormat f = format_of(code);
    using Product = BlockProduct<f, n>;
    std::byte* shared = shared_memory();
    auto* const table = reinterpret_cast<uint32_t*>(shared);
    shared += table_bytes(f);
    auto* const sums = reinterpret_cast<float*>(shared);
    shared += Product::shared_bytes;

    int64_t block = block_x();
    int which = 0;
    while (which + 1 < a.segments && block >= a.segment[which].blocks) block -= a.segment[which++].blocks;
    const Segment& s = a.segment[which];
    const std::byte* const weight = s.data + block * f.block_bytes(a.x.cols);
    Product product(weight, a.x.cols);

    Activations x = a.prepared;
    if constexpr (alone) {
        x = arranged(shared, 1, a.x.cols, false);
        prepare_column(a.x.row(0), a.x.cols, x, 0, sums);
    }
    if constexpr (f.table) fill_table(a.table, table);
    if constexpr (alone || f.table) sync_block();

    const int64_t first = int64_t{block_y()} * 8 * n;
    WarpColumns<n> columns;
    for (int i = 0; i < n; ++i) {
        const int64_t g = first + 8 * i + lane() / 4, t = first + 8 * i + lane() % 4 * 2;
        columns.on[i] = first + 8 * i < a.x.rows;
        columns.x[i] = g < a.x.rows ? x.values + g * x.col_stride : nullptr;
        for (int c = 0; c < 2; ++c)
            columns.sum[i][c] = (t + c < a.x.rows ? t + c : a.x.rows - 1) * x.sum_col_stride;
    }
    product.run(table, x, columns, sums);
    for (int i = thread_index(); i < 16 * 8 * n; i += block_threads()) {
        const int64_t row = 16 * block + i % 16, column = first + i / 16;
        if (row < s.rows && column < a.x.rows)
            store(a, s, row, column,
                  Product::result(sums, i % 16, i / 16) * x.inverse[column] *
                      row_factor<f>(weight, a.x.cols, i % 16));
    }
}

#include "ggml/cuda/gemm.inl"

// f32 weights: a warp per weight row; block y is a row of x. For small matrices, such as routers.
__global__ void f32_matmul_kernel(MatmulArgs a, int64_t stride) {
    const Segment& s = a.segment[0];
    const int64_t row = block_x() * (block_threads() / 32) + warp_index(), column = block_y();
    if (row >= s.rows) return;
    const auto* const w = reinterpret_cast<const float*>(s.data + row * stride);
    const float* const x = a.x.row(column);
    float sum = 0;
    for (int i = lane(); i < a.x.cols; i += 32) sum += w[i] * x[i];
    sum = warp_sum(sum);
    if (lane() == 0) store(a, s, row, column, sum);
}

constexpr int64_t largest_alone = size_t{64} << 10;  // bytes of shared memory for an unprepared row

template <TileFormat f, int n, bool alone>
void launch_product(const Exec& e, const MatmulArgs& a) {
    int64_t blocks = 0;
    for (int i = 0; i < a.segments; ++i) blocks += a.segment[i].blocks;
    const size_t shared =
        table_bytes(f) + BlockProduct<f, n>::shared_bytes + (alone ? arranged_bytes(1, a.x.cols) : 0);
    const Dims dims{blocks, static_cast<int32_t>(blocks_for(a.x.rows, 8 * n)), 1, 256, shared};
    launch(matmul_kernel<format_code(f), n, alone>, dims, *e.stream, a);
}

template <TileFormat f>
void launch_gemm(const Exec& e, const MatmulArgs& a) {
    using S = GemmShape<f>;
    int64_t groups = 0;
    for (int i = 0; i < a.segments; ++i) groups += blocks_for(a.segment[i].blocks, S::row_blocks);
    const Dims dims{blocks_for(a.x.rows, S::columns), static_cast<int32_t>(groups), 1, 256, S::shared_bytes};
    launch(gemm_kernel<format_code(f)>, dims, *e.stream, a);
}

template <TileFormat f>
void launch_rows(const Exec& e, const MatmulArgs& a) {
    const int64_t rows = a.x.rows;
    constexpr int64_t few = 32;
    if (rows > few && GemmShape<f>::shared_bytes <= e.card->shared_per_block) return launch_gemm<f>(e, a);
    if (rows == 1 && arranged_bytes(1, a.x.cols) <= largest_alone) return launch_product<f, 1, true>(e, a);
    if (rows <= 8) return launch_product<f, 1, false>(e, a);
    if (rows <= 16) return launch_product<f, 2, false>(e, a);
    launch_product<f, 4, false>(e, a);
}

void prepare(const Exec& e, const MatmulArgs& a) {
    launch(prepare_kernel, Dims{a.x.rows, 1, 1, 256, 8 * sizeof(float)}, *e.stream, a.x, a.prepared);
}

}  // namespace

size_t matmul_scratch(const Exec&, const OpArgs& a) { return arranged_bytes(a.in[0].rows, a.in[0].cols); }

void run_matmul(const Exec& e, const OpArgs& a, std::span<std::byte> scratch) {
    const auto n = static_cast<size_t>(a.params->as<MatmulParams>().n_weights);
    const Tensor& x = a.in[0];
    if (x.rows == 0) return;
    int32_t first_col = 0;
    bool prepared = x.rows == 1;
    for (size_t i = 0; i < n;) {
        const Tensor& w = a.in[2 + i];
        MatmulArgs args{
            {{nullptr, 0, 0, 0, Tensor{}}, {nullptr, 0, 0, 0, Tensor{}}, {nullptr, 0, 0, 0, Tensor{}}},
            0,
            x,
            a.in[1],
            a.out[0],
            {},
            table_of(w.type)};
        // Neighbours of one format share a launch.
        for (; i < n && a.in[2 + i].type == w.type; ++i) {
            const Tensor& m = a.in[2 + i];
            args.segment[args.segments++] = {m.data, ceil_div(m.rows, int64_t{16}),
                                             static_cast<int32_t>(m.rows), first_col, a.in[2 + n + i]};
            first_col += static_cast<int32_t>(m.rows);
            if (w.layout == Layout::rows) break;
        }
        if (w.layout == Layout::rows) {
            ++i;
            launch(f32_matmul_kernel, Dims{blocks_for(w.rows, 8), static_cast<int32_t>(x.rows), 1, 256},
                   *e.stream, args, w.stride);
            continue;
        }
        args.prepared = arranged(scratch.data(), x.rows, x.cols, false);
        if (!prepared) prepare(e, args);
        prepared = true;
        visit_tile_format(w.type, [&]<TileFormat f>() { launch_rows<f>(e, args); });
    }
}

}  // namespace nibble::cuda
