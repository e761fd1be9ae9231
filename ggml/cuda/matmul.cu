// matmul on the GPU: tiles of any format times f32 activations, with bias and residual.
// A row's result depends, to the last bit, on that row and the shape of the weight alone.
#include <algorithm>
#include <array>

#include "ggml/base/checked.h"
#include "ggml/cuda/product.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"
#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/matmul_row.inl"

// Sixteen rows of one of the weights.
struct RowBlock {
    int which;
    int64_t index;
    const std::byte* data;
};

// Of all weights of a launch.
__host__ __device__ inline int64_t row_blocks(const MatmulArgs& a) {
    int64_t blocks = 0;
    for (int i = 0; i < a.segments; ++i) blocks += a.segment[i].blocks;
    return blocks;
}

template <TileFormat f>
__device__ RowBlock row_block(const MatmulArgs& a, int64_t block) {
    const int which = segment_at(a, 1, block);
    return {which, block, a.segment[which].data + block * f.block_bytes(a.x.cols)};
}

// Blocks stay and go through the rows of the weights together: a row of x is prepared once by each, and
// reading never pauses. Block x: 16 rows of the weights, and every grid_x()th after them; block y: 8 n rows
// of x. With `alone`, x has one row and the block converts it itself, which saves a launch; the bits are the
// same.
template <uint32_t code, int n, bool alone>
__global__ void __launch_bounds__(256, resident_blocks) matmul_kernel(MatmulArgs a) {
    constexpr TileFormat f = format_of(code);
    constexpr int width = alone ? 1 : 8;
    using Product = BlockProduct<f, n, width>;
    std::byte* shared = shared_memory();
    uint32_t table = 0;
    shared += table_bytes(f);
    auto* const sums = reinterpret_cast<float*>(shared);
    shared += 2 * Product::shared_bytes;

    const int64_t blocks = row_blocks(a);
    RowBlock now = row_block<f>(a, block_x());
    Product product(now.data, a.x.cols);

    const auto x = [&] {
        if constexpr (alone)
            return arranged<1>(shared, 1, a.x.cols);
        else
            return a.prepared;
    }();
    if constexpr (f.table) table = fill_table(a.table);
    NormAhead ahead;
    if constexpr (alone) ahead = norm_ahead(a.norm, a.x.cols);
    wait_for_previous();
    if constexpr (alone) prepare_row(a.x, 0, a.norm, ahead, block_x() == 0, x, 0, sums);
    if constexpr (alone || f.table) sync_block();

    const int64_t first = int64_t{block_y()} * 8 * n;
    const WarpColumns<n> columns(x, [&](int c) -> int64_t {
        return alone ? 0 : first + c < a.x.rows ? first + c : a.x.rows - 1;
    });
    int side = 0;  // sums of one row block are read while those of the next are written
    for (int64_t block = block_x(); block < blocks; block += grid_x(), side ^= 1) {
        const bool more = block + grid_x() < blocks;
        const RowBlock next = row_block<f>(a, more ? block + grid_x() : block);
        float* const to = sums + side * (Product::shared_bytes / sizeof(float));
        product.run(table, columns, to, more ? next.data : nullptr);
        const Segment& s = a.segment[now.which];
        for (int i = thread_index(); i < 16 * (alone ? 1 : 8 * n); i += block_threads()) {
            const int64_t row = 16 * now.index + i % 16, column = first + i / 16;
            if (row < s.rows && column < a.x.rows)
                store(a, s, row, column,
                      scaled<f>(Product::result(to, i % 16, i / 16), x, column, now.data, a.x.cols, i % 16));
        }
        now = next;
    }
}

#include "ggml/cuda/gemm.inl"
#include "ggml/cuda/matmul_f32.inl"
#include "ggml/cuda/matmul_split.inl"

constexpr size_t largest_alone = size_t{64} << 10;  // bytes of shared memory for an unprepared row

template <TileFormat f, int n, bool alone>
void launch_product(const Exec& e, const MatmulArgs& a) {
    using Product = BlockProduct<f, n, alone ? 1 : 8>;
    const size_t shared =
        table_bytes(f) + 2 * Product::shared_bytes + (alone ? arranged_bytes<1>(1, a.x.cols) : 0);
    const int64_t at_once = int64_t{e.card->multiprocessors} * resident_blocks;
    const Dims dims{std::min(row_blocks(a), at_once), static_cast<int32_t>(blocks_for(a.x.rows, 8 * n)), 1,
                    256, shared};
    launch(matmul_kernel<format_code(f), n, alone>, dims, *e.stream, a);
}

// What a launch of split_kernel may leave between its warps; more row blocks take more launches.
constexpr size_t largest_partial = size_t{32} << 20;

int64_t split_blocks(int n, int64_t passes, int64_t blocks, size_t bytes) {
    const auto most = static_cast<int64_t>(std::min(bytes, largest_partial) / run_sums_bytes(n));
    return std::min({blocks, most / passes, attention_counters / passes});
}

// Whether the row blocks had better share the reading of x: eight rows stay in a cache if they are not long.
bool splits(int64_t rows, int64_t cols) { return rows > 8 || rows * cols > (int64_t{1} << 16); }

template <TileFormat f, int n>
void launch_few(const Exec& e, const MatmulArgs& a, std::span<std::byte> partial) {
    const int64_t passes = blocks_for(a.x.rows, 8 * n), blocks = row_blocks(a);
    const int64_t at_once = split_blocks(n, passes, blocks, partial.size());
    constexpr int without = n == 1 ? 1 : 4;  // kernels enough for what hardly happens
    if (!splits(a.x.rows, a.x.cols) || a.x.rows > most_streamed(e) || at_once == 0)
        return launch_product<f, without, false>(e, a);
    const int64_t resident = int64_t{e.card->multiprocessors} * resident_blocks;
    for (int64_t first = 0; first < blocks; first += at_once) {
        const SplitRange range{first, std::min(at_once, blocks - first),
                               reinterpret_cast<Words4*>(partial.data()), e.counters};
        const int64_t x =
            std::min(std::max<int64_t>(resident / (runs * passes), 1), blocks_for(range.count, 8));
        launch(split_kernel<format_code(f), n>,
               Dims{x, runs, static_cast<int32_t>(passes), 256, table_bytes(f)}, *e.stream, a, range);
    }
}

// Formats that need a kernel of two stages, for cards of generation 7.5: these have 64 KiB. A third stage
// would be no use there, for copies are waited for as they are asked for.
template <TileFormat f>
constexpr bool two_stages() {
    constexpr size_t least = size_t{64} << 10;
    return GemmShape<f>::shared_bytes(2) <= least && least < GemmShape<f>::shared_bytes(3);
}

// How many stages a block of this card has room for; 0: too few.
template <TileFormat f>
int gemm_stages(const Exec& e) {
    const size_t room = e.card->shared_per_block;
    if (GemmShape<f>::shared_bytes(3) <= room) return 3;
    return two_stages<f>() && GemmShape<f>::shared_bytes(2) <= room ? 2 : 0;
}

template <TileFormat f>
Dims gemm_dims(const MatmulArgs& a, int stages) {
    using S = GemmShape<f>;
    int64_t groups = 0;
    for (int i = 0; i < a.segments; ++i) groups += blocks_for(a.segment[i].blocks, S::row_blocks);
    return {blocks_for(a.x.rows, S::columns), static_cast<int32_t>(groups), 1, 256, S::shared_bytes(stages)};
}

template <TileFormat f>
void launch_matrix(const Exec& e, const MatmulArgs& a) {
    constexpr uint32_t code = format_code(f);
    if constexpr (two_stages<f>())
        if (gemm_stages<f>(e) == 2) return launch(gemm_kernel<code, 2>, gemm_dims<f>(a, 2), *e.stream, a);
    launch(gemm_kernel<code, 3>, gemm_dims<f>(a, 3), *e.stream, a);
}

// Whether many rows are multiplied sooner in blocks of 128 x 128 than 32 rows at a time. A tile of weights by
// 32 rows takes about as many instructions in either; the blocks may leave multiprocessors without work, and
// the sums of runs take half as long again on their way through the cache.
template <TileFormat f>
bool as_matrix(const Exec& e, const MatmulArgs& a) {
    using S = GemmShape<f>;
    const int stages = gemm_stages<f>(e);
    if (a.x.rows <= few || stages == 0) return false;
    if (a.x.rows > most_streamed(e)) return true;
    const Dims dims = gemm_dims<f>(a, stages);
    const int64_t turns = blocks_for(dims.x * dims.y, e.card->multiprocessors);
    const int64_t here = turns * S::row_blocks * (S::columns / few) * e.card->multiprocessors;
    return 2 * here <= 3 * row_blocks(a) * blocks_for(a.x.rows, few);
}

// One row converts itself in every block, if it fits: beside the sums of two products, each twice, and the
// table, if the format has one, in what a block of this card has.
bool converts_itself(const Exec& e, const View& x, Type weight) {
    const size_t beside = table_bytes(tiles_of(weight)) + 4 * run_sums_bytes(1);
    const size_t bytes = arranged_bytes<1>(1, x.cols);
    return x.rows == 1 && bytes <= largest_alone && bytes + beside <= e.card->shared_per_block;
}

template <TileFormat f>
void launch_rows(const Exec& e, const MatmulArgs& a, bool alone, std::span<std::byte> partial) {
    const int64_t rows = a.x.rows;
    if (as_matrix<f>(e, a)) return launch_matrix<f>(e, a);
    if (alone) return launch_product<f, 1, true>(e, a);
    if (rows <= 8) return launch_few<f, 1>(e, a, partial);
    if (rows <= 16) return launch_few<f, 2>(e, a, partial);
    launch_few<f, 4>(e, a, partial);
}

const RowNorm no_norm{false, 0, Tensor{}, Tensor{}};

// What a product multiplies: x, or what a norm or a unit makes of other rows, and memory for it as fragments.
struct Input {
    Tensor x;
    std::span<std::byte> memory;
    RowNorm norm = no_norm;
    RowUnit unit{false, {}, Tensor{}};
};

MatmulArgs args_of(const OpArgs& a, const Input& in) {
    const Segment none{nullptr, 0, 0, 0, Tensor{}};
    return {{{none, none, none}, 0, in.x, a.in[1], a.out[0], in.norm, in.unit, {}},
            arranged<8>(in.memory.data(), in.x.rows, in.x.cols)};
}

std::span<const Tensor> weights_of(const OpArgs& a) {
    return a.in.subspan(2, static_cast<size_t>(a.params->as<MatmulParams>().n_weights));
}

Segment segment_of(const OpArgs& a, size_t i, int32_t first_col) {
    const Tensor &w = a.in[2 + i],
                 &bias = a.in[2 + static_cast<size_t>(a.params->as<MatmulParams>().n_weights) + i];
    return {w.data, ceil_div(w.rows, int64_t{16}), static_cast<int32_t>(w.rows), first_col, bias};
}

// Adds all weights, side by side, and their types; false: some are not tiles.
bool add_segments(const OpArgs& a, MatmulArgs& args, std::array<Type, max_matmul_weights>& types) {
    int32_t first_col = 0;
    args.segments = 0;
    for (const Tensor& w : weights_of(a)) {
        if (w.layout == Layout::rows) return false;
        const auto i = static_cast<size_t>(args.segments++);
        types[i] = w.type;
        args.segment[i] = segment_of(a, i, first_col);
        first_col += static_cast<int32_t>(w.rows);
    }
    return true;
}

// By all weights in one launch, if there is one for so many rows and these weights.
bool multiply_together(const Exec& e, const OpArgs& a, std::span<std::byte> scratch, const Input& in) {
    const int64_t rows = in.x.rows, cols = in.x.cols;
    const bool batch = batch_applies(e, rows), many = warpgroups_apply(e, rows),
               few = few_applies(e, rows, cols);
    if (!batch && !many && !few && (rows != 1 || in.unit.on)) return false;
    MatmulArgs args = args_of(a, in);
    std::array<Type, max_matmul_weights> list{};
    if (!add_segments(a, args, list)) return false;
    const std::span<const Type> types = std::span(list).first(static_cast<size_t>(args.segments));
    if (batch) {
        const size_t bytes = batch_prepared_bytes(rows, cols);
        return in.memory.size() >= bytes && scratch.size() >= bytes &&
               multiply_batch(e, args, types, in.memory, scratch.subspan(bytes));
    }
    if (few) return multiply_few(e, args, types, in.memory);
    if (!many) return multiply_gemv(e, args, types);
    const bool mixed = std::ranges::any_of(types, [&](Type t) { return t != types[0]; });
    if (!mixed || !mixes_warpgroup(e, args, types)) return false;
    prepare_warpgroup(e, args, in.memory);
    multiply_mixed_warpgroup(e, args, types, in.memory);
    return true;
}

void multiply(const Exec& e, const OpArgs& a, std::span<std::byte> scratch, Input in) {
    const Tensor& x = in.x;
    const auto n = static_cast<size_t>(a.params->as<MatmulParams>().n_weights);
    if (x.rows == 0 || multiply_together(e, a, scratch, in)) return;
    const bool warpgroups = warpgroups_apply(e, x.rows);
    int32_t first_col = 0;
    bool prepared = false;
    for (size_t i = 0; i < n;) {
        const Tensor& w = a.in[2 + i];
        MatmulArgs args = args_of(a, in);
        args.table = table_of(w.type);
        // Neighbours of one format share a launch.
        for (; i < n && a.in[2 + i].type == w.type; ++i) {
            args.segment[args.segments++] = segment_of(a, i, first_col);
            first_col += static_cast<int32_t>(a.in[2 + i].rows);
            if (w.layout == Layout::rows) break;
        }
        if (w.layout == Layout::rows) {
            ++i;
            launch_f32(e, args, w.stride);
            continue;
        }
        const bool alone = converts_itself(e, x, w.type);
        if (!prepared && !alone) {
            if (warpgroups)
                prepare_warpgroup(e, args, in.memory);
            else
                prepare_rows(e, args, args.prepared);
            prepared = true;
        }
        in.norm.out.data = nullptr;  // the first launch keeps it
        if (warpgroups) {
            multiply_warpgroup(e, args, w.type, in.memory);
            continue;
        }
        const auto partial = scratch.subspan(arranged_bytes<8>(x.rows, x.cols));
        visit_tile_format(w.type, [&]<TileFormat f>() { launch_rows<f>(e, args, alone, partial); });
    }
}

// Block x: 16 rows of the gate's weight and of the other's, by eight warps each, and what the unit makes of
// their products with one row; then every grid_x()th after them.
template <uint32_t code>
__global__ void __launch_bounds__(512) gated_kernel(MatmulArgs a, GluParams p, View out) {
    constexpr TileFormat f = format_of(code);
    using Product = BlockProduct<f, 1, 1>;
    std::byte* shared = shared_memory();
    uint32_t table = 0;
    shared += table_bytes(f);
    auto* const sums = reinterpret_cast<float*>(shared);
    constexpr int sums_each = Product::shared_bytes / sizeof(float);
    shared += 4 * Product::shared_bytes;

    const bool second = warp_index() >= runs;
    const std::byte* const weight = second ? a.segment[1].data : a.segment[0].data;
    const int64_t bytes = f.block_bytes(a.x.cols), blocks = a.segment[0].blocks;
    Product product(weight + block_x() * bytes, a.x.cols, warp_index() % runs);
    const auto x = arranged<1>(shared, 1, a.x.cols);
    if constexpr (f.table) table = fill_table(a.table);
    const NormAhead ahead = norm_ahead(a.norm, a.x.cols);
    wait_for_previous();
    prepare_row(a.x, 0, a.norm, ahead, block_x() == 0, x, 0, sums);
    sync_block();
    const WarpColumns<1> columns(x, [](int) -> int64_t { return 0; });
    int side = 0;
    for (int64_t block = block_x(); block < blocks; block += grid_x(), side ^= 1) {
        const int64_t next = block + grid_x();
        float* const to = sums + side * 2 * sums_each;
        product.run(table, columns, to + (second ? sums_each : 0),
                    next < blocks ? weight + next * bytes : nullptr);
        const int i = thread_index();
        const int64_t row = 16 * block + i;
        if (i >= 16 || row >= a.segment[0].rows) continue;
        float value[2];
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            value[s] = scaled<f>(Product::result(to + s * sums_each, i, 0), x, 0,
                                 a.segment[s].data + block * bytes, a.x.cols, i);
            if (a.segment[s].bias) value[s] += a.segment[s].bias.row(0)[row];
        }
        out.row(0)[row] = gated(p, value[0], value[1]);
    }
}

#include "ggml/cuda/joined.inl"

}  // namespace

// Of a step with the most rows, and of those with fewer.
size_t matmul_scratch(const Exec& e, const OpArgs& a) {
    const int64_t rows = a.in[0].rows, cols = a.in[0].cols, some = std::min(rows, most_streamed(e));
    size_t all = std::max(arranged_bytes<8>(rows, cols), few_prepared_bytes(cols));
    if (warpgroups_apply(e, rows)) all = std::max(all, warpgroup_scratch(rows, cols));
    if (const int64_t batch = std::min(some, most_batched); batch_applies(e, batch))
        all = std::max(all,
                       batch_prepared_bytes(batch, cols) + batch_partial_bytes(batch, cols, weights_of(a)));
    if (!splits(some, cols)) return all;
    int64_t blocks = 0;
    for (int64_t i = 0; i < a.params->as<MatmulParams>().n_weights; ++i)
        blocks += ceil_div(a.in[2 + static_cast<size_t>(i)].rows, int64_t{16});
    const int n = some <= 8 ? 1 : some <= 16 ? 2 : 4;
    const int64_t passes = ceil_div(some, int64_t{8} * n);
    const auto partial =
        static_cast<size_t>(passes * split_blocks(n, passes, blocks, largest_partial)) * run_sums_bytes(n);
    return std::max(all, arranged_bytes<8>(some, cols) + partial);
}

void run_matmul(const Exec& e, const OpArgs& a, std::span<std::byte> scratch) {
    multiply(e, a, scratch, {a.in[0], scratch});
}

size_t run_joined(const Exec& e, std::span<const BoundInstr> instrs) { return join_first(e, instrs); }

}  // namespace nibble::cuda
