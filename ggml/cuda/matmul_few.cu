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

// A warp's way through its row blocks, as GemvStream; a unit is a tile.
template <TileFormat f, class From>
class FewStream {
  public:
    __device__ FewStream(const From& from, int count, const WarpShare& share, int64_t k)
        : from_(from), share_(share), k_(k), n_tiles_(static_cast<int>(TileFormat::tiles(k))), count_(count) {
        if (left() == 0) return;
        reads_ = from(0);
#pragma unroll
        for (int i = 0; i < ahead; ++i)
            if (i < left()) load(ahead_[i]);
    }

    // Sums of the row blocks go to `partial`, `step` floats apart.
    __device__ void run(const WarpColumns<1>& columns, uint32_t table, float* partial, int step) {
        auto* to = reinterpret_cast<Words4*>(partial) + lane();
        if (share_.units == 0)
            for (int i = 0; i < count_; ++i, to += step / 4) *to = Words4{};
        Sums<1> sums{};
        float factor[2];
        int unit = 0, number = 0;
        for (int left = this->left(); left > 0;) {
#pragma unroll
            for (int i = 0; i < ahead; ++i) {
                if (left == 0) break;
                if (unit == 0) {
                    const std::byte* const block = from_(number);
                    for (int half = 0; half < 2; ++half)
                        factor[half] = row_factor<f>(block, k_, lane() / 4 + 8 * half);
                }
                multiply_tile<f, 1, 8>(ahead_[i], share_.first + unit, table, columns, sums);
                if (left > ahead) load(ahead_[i]);
                --left;
                if (++unit != share_.units) continue;
                Words4 w;
                for (int j = 0; j < 4; ++j) w.w[j] = float_bits(sums.d[0][j] * factor[j / 2]);
                *to = w;
                unit = 0, ++number, to += step / 4, sums = Sums<1>{};
            }
        }
    }

  private:
    static constexpr int ahead = tiles_ahead(f, 1);
    __device__ int left() const { return count_ * share_.units; }
    __device__ void load(LaneTile<f>& tile) {
        load_tile<f>(tile_place<f>(reads_, n_tiles_, share_.first + next_), 0, tile);
        if (++next_ == share_.units) next_ = 0, ++block_, reads_ = block_ < count_ ? from_(block_) : reads_;
    }

    const From from_;
    const WarpShare share_;
    const int64_t k_;
    const int n_tiles_, count_;
    const std::byte* reads_ = nullptr;
    int next_ = 0, block_ = 0;
    LaneTile<f> ahead_[ahead];
};

// Block x: `height` row blocks, and as many again `grid_x()` times that further on.
template <uint32_t... codes>
__global__ void __launch_bounds__(row_block_threads, resident_blocks) few_kernel(FewArgs a) {
    static_assert(max_matmul_weights == 3);
    std::byte* shared = shared_memory();
    if (a.table_used) shared += size_t{32} << 10;
    auto* const sums = reinterpret_cast<float*>(shared);  // [slot][split][lane][4]

    uint32_t table = 0;
    if (a.table_used) table = fill_table(a.table);
    wait_for_previous();
    if (a.table_used) sync_block();

    const auto rows = static_cast<int>(a.x.rows);
    const WarpColumns<1> columns(a.prepared, [&](int c) -> int64_t { return c < rows ? c : rows - 1; });
    const int turns = a.slots / a.height, splits = 1 << a.split_bits;
    for (int first = 0; first < turns; first += a.turns) {
        if (first > 0) sync_block();
        float* const to = sums + warp_index() * few_sums;
        for_each_weight<codes...>(
            a, first, first + a.turns, [&]<TileFormat f>(const StridedBlocks& blocks, int count, int turn) {
                FewStream<f, StridedBlocks> stream(blocks, count, WarpShare(a), a.x.cols);
                stream.run(columns, table, to + (turn - first) * few_sums * block_warps,
                           few_sums * block_warps);
            });
        sync_block();
        const int slots = a.turns * a.height, before = first * a.height;
        for (int i = thread_index(); i < slots * 16 * rows; i += row_block_threads) {
            const int r = i % 16, c = i / 16 % rows, slot = i / 16 / rows;
            const RowBlockPlace place(a, before + slot);
            const int row = 16 * place.block + r;
            if (place.which < 0 || row >= a.segment[place.which].rows) continue;
            const Segment& s = a.segment[place.which];
            const float bias = s.bias ? s.bias.row(0)[row] : 0;
            const float residual = a.residual ? a.residual.row(c)[s.first_col + row] : 0;
            const float* const of =
                sums + (slot << a.split_bits) * few_sums + (r % 8 * 4 + c / 2) * 4 + r / 8 * 2 + c % 2;
            float sum = 0;
#pragma unroll
            for (int p = 0; p < block_warps; ++p) sum += p < splits ? of[few_sums * p] : 0;
            a.out.row(c)[s.first_col + row] = sum * a.prepared.inverse[c] + bias + residual;
        }
    }
}

}  // namespace

bool few_applies(const Exec& e, int64_t rows, int64_t cols) {
    constexpr int64_t cached = int64_t{1} << 17;  // of x: what blocks that stay do not read too often
    return e.gemv && rows >= 2 && rows <= 8 && rows * cols <= cached;
}

bool multiply_few(const Exec& e, const ProductArgs& product, std::span<const Type> types,
                  std::span<std::byte> prepared) {
    FewArgs a{{product}, arranged<8>(prepared.data(), product.x.rows, product.x.cols), 0};
    const int64_t grid = plan_row_blocks(
        e, types, [](TileFormat) { return 64; }, a);
    if (grid == 0) return false;
    const int each = (a.height << a.split_bits) * few_sums * static_cast<int>(sizeof(float));
    a.turns = std::min(a.slots / a.height, few_sums_bytes / each);
    const size_t shared = (a.table_used ? size_t{32} << 10 : 0) + static_cast<size_t>(a.turns) * each;
    if (shared > e.card->shared_per_block) return false;
    return with_formats(
        types, [&]<uint32_t... codes>() {
            launch(few_kernel<codes...>, Dims{grid, 1, 1, row_block_threads, shared}, *e.stream, a);
        });
}

}  // namespace nibble::cuda
