// The product of two to eight rows with weights of any formats in one launch: some users, or guessed tokens.
// A row's bits do not depend on how many of them there are; they are not those of matmul.cu.
#include <algorithm>
#include <limits>

#include "ggml/base/checked.h"
#include "ggml/cuda/product.h"
#include "ggml/cuda/tile_codes.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/matmul_blocks.inl"

struct FewArgs : RowBlockArgs {
    Activations<8> prepared;
    int32_t turns;  // after which sums become results
};

// What a warp leaves of a row block: its fragment of sums, 16 bytes per lane.
constexpr int few_sums = 16 * 8;
// Of shared memory for those, so that two thread blocks and the cached rows of x have room beside each other.
constexpr int few_sums_bytes = 48 << 10;

// A unit of columns is a tile.
template <TileFormat f>
struct FewUnit {
    static constexpr int ahead = tiles_ahead(f, 1);
    LaneTile<f> tile;
    __device__ void load(const std::byte* block, int n_tiles, int unit) {
        load_tile<f>(tile_place<f>(block, n_tiles, unit), 0, tile);
    }
};

// What a warp does with its units of a row block (RowBlockStream): sums of the row blocks go to `partial`,
// `step` floats apart. Its share of the columns begins at tile `first`.
template <TileFormat f>
struct FewWork {
    const WarpColumns<1>& columns;
    const uint32_t table;
    float* partial;
    const int step, first;
    const int64_t k;

    Sums<1> sums{};
    float factor[2] = {};

    __device__ void begin(const std::byte* block) {
        for (int half = 0; half < 2; ++half) factor[half] = row_factor<f>(block, k, lane() / 4 + 8 * half);
    }
    __device__ void add(const FewUnit<f>& u, int unit) {
        multiply_tile<f, 1, 8>(u.tile, first + unit, table, columns, sums);
    }
    __device__ void added(int /*units*/) {}
    __device__ void end() {
        for (int j = 0; j < 4; ++j) sums.d[0][j] *= factor[j / 2];
        leave(words_of(sums.d[0]));
        sums = Sums<1>{};
    }
    __device__ void none() { leave({}); }
    __device__ void leave(const Words4& w) {
        reinterpret_cast<Words4*>(partial)[lane()] = w;
        partial += step;
    }
};

// Block x: `height` row blocks, and as many again `grid_x()` times that further on.
template <uint32_t... codes>
__global__ void __launch_bounds__(row_block_threads, resident_blocks) few_kernel(FewArgs a) {
    auto* const sums = reinterpret_cast<float*>(shared_memory() + a.table_bytes());  // [slot][split][lane][4]

    uint32_t table = 0;
    if (a.table_used) table = fill_table(a.table);
    wait_for_previous();
    if (a.table_used) sync_block();

    const auto rows = static_cast<int>(a.x.rows);
    const WarpColumns<1> columns(a.prepared, [&](int c) -> int64_t { return c < rows ? c : rows - 1; });
    const WarpShare share(a);
    const int turns = a.slots / a.height;
    constexpr int step = few_sums * block_warps;
    for (int first = 0; first < turns; first += a.turns) {
        if (first > 0) sync_block();
        float* const to = sums + warp_index() * few_sums;
        for_each_weight<codes...>(
            a, first, first + a.turns, [&]<TileFormat f>(const StridedBlocks& blocks, int count, int turn) {
                RowBlockStream<FewUnit<f>, StridedBlocks> stream(blocks, count, share.first, share.units,
                                                                 a.x.cols);
                stream.run(
                    FewWork<f>{columns, table, to + (turn - first) * step, step, share.first, a.x.cols});
            });
        sync_block();
        const int slots = a.turns * a.height, before = first * a.height;
        for (int i = thread_index(); i < slots * 16 * rows; i += row_block_threads) {
            const int r = i % 16, c = i / 16 % rows, slot = i / 16 / rows;
            const RowBlockPlace place(a, before + slot);
            const int row = 16 * place.block + r;
            if (place.which < 0 || row >= a.segment[place.which].rows) continue;
            const float* const of =
                sums + (slot << a.split_bits) * few_sums + (r % 8 * 4 + c / 2) * 4 + r / 8 * 2 + c % 2;
            const Added added(a, place, row, c);
            a.out.row(c)[a.segment[place.which].first_col + row] =
                sum_of_splits(a, of, few_sums) * a.prepared.inverse[c] + added.bias + added.residual;
        }
    }
}

}  // namespace

bool few_applies(const Exec& e, int64_t rows, int64_t cols) {
    constexpr int64_t cached = int64_t{1} << 17;  // of x: what blocks that stay do not read too often
    return e.gemv && rows >= 2 && rows <= most_few && rows * cols <= cached;
}

bool multiply_few(const Exec& e, const ProductArgs& product, std::span<const Type> types,
                  std::span<std::byte> memory) {
    FewArgs a{{product}, arranged<8>(memory.data(), product.x.rows, product.x.cols), 0};
    const int64_t grid = plan_row_blocks(
        e, types, [](TileFormat) { return 64; }, a);
    if (grid == 0) return false;
    const int each = (a.height << a.split_bits) * few_sums * static_cast<int>(sizeof(float));
    a.turns = std::min(a.slots / a.height, few_sums_bytes / each);
    const size_t shared = static_cast<size_t>(a.table_bytes()) + static_cast<size_t>(a.turns) * each;
    if (shared > e.card->shared_per_block) return false;
    return with_formats(
        types, [&]<uint32_t... codes>() {
            prepare_few(e, product, memory);
            launch(few_kernel<codes...>, Dims{grid, 1, 1, row_block_threads, shared}, *e.stream, a);
        });
}

}  // namespace nibble::cuda
