// matmul for 9 to 128 rows, a batch of users, on cards of generation 9.0: by warpgroups, at the pace of
// memory. A row's result depends, to the last bit, on that row and the shape of the weight alone.
#include <algorithm>

#include "ggml/base/checked.h"
#include "ggml/cuda/product.h"
#include "ggml/cuda/tile_codes.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"
#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/matmul_row.inl"
#include "ggml/cuda/warpgroup.inl"

// So few rows of x leave the tensor cores idle: what counts is how many weights are on their way. All come
// through shared memory, by copies in one piece, which hold no registers: two blocks of a multiprocessor have
// some 100 KiB of weights under way. A warp asks for its own row block's tiles and waits for nobody but
// itself; rows of x, which all warps of a block share, go by barriers between them (as in RowCopies).
//
// Weights with few rows have too few row blocks for a card: their columns are cut into runs, each of which is
// a block. The last warp to finish a row block adds the runs in their order.
constexpr int batch_warps = 4 * block_warpgroups;

// Of a block: what leaves room for two.
constexpr int batch_shared = 113 << 10;
constexpr int most_slots = 8;
// Tiles of a run: of 256 columns, for these share what scales are times.
constexpr int64_t run_step = 4, least_run = 8, most_run = 128;

struct BatchArgs : ProductArgs {
    WarpgroupRows prepared;
    uint32_t code[max_matmul_weights];
    int32_t runs[max_matmul_weights], run_tiles[max_matmul_weights];
    int32_t first_done[max_matmul_weights];  // of the counters of row blocks
    int64_t first_partial[max_matmul_weights];
    Words4* partial;  // [weight][row block][run][8 rows of x][lane]
    int* done;
};

// How shared memory is cut up for 8 n rows of x:
//   x: [slot][tile][row][128 bytes] | weights: [slot][warp][tile] | supers: [warp] | barriers
// A slot holds two tiles of columns if there can be enough of such slots, or one.
template <TileFormat f, int n>
struct BatchSlots {
    static constexpr int x_tile = 8 * n * WarpgroupRows::row_bytes, weight_tile = f.tile_bytes(),
                         tile = x_tile + batch_warps * weight_tile, super = 8 * f.lane_super(),
                         barriers = barrier_bytes * (2 + batch_warps),  // of a slot
        most_supers = batch_warps * super * static_cast<int>(most_run / run_step);
    static constexpr int count_of(int tiles, int supers) {
        const int room = (batch_shared - supers) / (tiles * tile + barriers);
        return room < most_slots ? room : most_slots;
    }
    static constexpr int tiles = count_of(2, most_supers) >= 5 ? 2 : 1;
    static constexpr int x_bytes = tiles * x_tile, weight_bytes = tiles * weight_tile;
    static_assert(count_of(tiles, most_supers) >= 3, "rows of x are asked for two slots late");
};

template <int n>
__device__ __forceinline__ void warpgroup_multiply(float (*d)[4], const uint32_t (&a)[4],
                                                   const std::byte* tile, int step) {
    if constexpr (n == 4)
        warpgroup_multiply32(d, a, tile, step);
    else if constexpr (n == 8)
        warpgroup_multiply64<false>(d, a, tile, step);
    else
        warpgroup_multiply128(d, a, tile, step);
}

// What load_words() reads of memory, of shared memory.
template <int bytes>
__device__ void read_words(uint32_t at, uint32_t* out) {
    if constexpr (bytes == 4) {
        *out = load_shared(at);
    } else if constexpr (bytes == 8) {
        const Words2 v = load_shared8(at);
        for (int i = 0; i < 2; ++i) out[i] = v.w[i];
    } else if constexpr (bytes == 16) {
        const Words4 v = load_shared16(at);
        for (int i = 0; i < 4; ++i) out[i] = v.w[i];
    }
}

// What a warp makes of a run of a row block and all rows of x.
template <TileFormat f, int n>
class BatchProduct {
    using Slots = BatchSlots<f, n>;

  public:
    Sums<n> sums{};

    // Others may wait behind the next barrier of the block. The address comes from a shuffle as in RowCopies.
    __device__ BatchProduct(std::byte* memory, const std::byte* block, const WarpgroupRows& x, int64_t k,
                            int first, int tiles)
        : tiles_(tiles),
          slots_(Slots::count_of(Slots::tiles, batch_warps * super_bytes())),
          memory_(shuffle(shared_address(memory), 0)),
          weights_(memory_ + slots_ * Slots::x_bytes + warp_index() * Slots::weight_bytes),
          supers_(memory_ + slots_ * (Slots::x_bytes + batch_warps * Slots::weight_bytes) +
                  warp_index() * super_bytes()),
          barriers_(memory_ + slots_ * (Slots::x_bytes + batch_warps * Slots::weight_bytes) +
                    batch_warps * super_bytes()),
          weights_from_(block + int64_t{first} * f.tile_bytes()),
          supers_from_(block + f.supers_at(k) + first / run_step * Slots::super),
          x_from_(x.values + first * x_step()) {
        if (lane() != 0) return;
        for (int i = 0; i < slots_; ++i) {
            barrier_begin(own_full(i), 1);
            if (warp_index() != 0) continue;
            barrier_begin(full(i), 1);
            barrier_begin(read(i), batch_warps);
        }
        publish_barriers();
    }
    __device__ void begin_weights() {
        if (lane() != 0) return;
        for (int i = 0; i < slots_; ++i) request_weights(i);
    }
    __device__ void begin_rows() {
        if (thread_index() != 0) return;
        for (int i = 0; i < slots_; ++i) request_rows(i);
    }

    __device__ void multiply() {
        // Two sets of fragments without a condition: with one, ptxas would let products wait for each other.
        int t = 0;
        for (; t + 2 <= tiles_; t += 2) {
            multiply_tile<0>(t);
            multiply_tile<1>(t + 1);
        }
        warpgroup_wait<0>();
        if (t < tiles_) multiply_tile<0>(t);
        warpgroup_wait<0>();
        warpgroup_results<n>(sums.d);
    }

  private:
    static __device__ constexpr int64_t x_step() { return Slots::x_tile; }
    __device__ int super_bytes() const {
        return (tiles_ + static_cast<int>(run_step) - 1) / static_cast<int>(run_step) * Slots::super;
    }
    __device__ uint32_t full(int slot) const { return barriers_ + slot * barrier_bytes; }
    __device__ uint32_t read(int slot) const { return full(slot + slots_); }
    __device__ uint32_t own_full(int slot) const { return full(slot + (2 + warp_index()) * slots_); }

    // What comes next into a slot, if there is anything left; by one lane.
    __device__ void request_weights(int slot) {
        const int tiles = tiles_ - weights_asked_ < Slots::tiles ? tiles_ - weights_asked_ : Slots::tiles;
        if (tiles <= 0) return;
        const int bytes = tiles * f.tile_bytes(), supers = weights_asked_ == 0 ? super_bytes() : 0;
        barrier_expect(own_full(slot), bytes + supers);
        copy_bulk_weights(weights_ + slot * batch_warps * Slots::weight_bytes, weights_from_, bytes,
                          own_full(slot));
        if (supers != 0) copy_bulk_weights(supers_, supers_from_, supers, own_full(slot));
        weights_from_ += Slots::weight_bytes, weights_asked_ += Slots::tiles;
    }
    __device__ void request_rows(int slot) {
        const int tiles = tiles_ - rows_asked_ < Slots::tiles ? tiles_ - rows_asked_ : Slots::tiles;
        if (tiles <= 0) return;
        barrier_expect(full(slot), tiles * Slots::x_tile);
        copy_bulk(memory_ + slot * Slots::x_bytes, x_from_, tiles * Slots::x_tile, full(slot));
        x_from_ += Slots::x_bytes, rows_asked_ += Slots::tiles;
    }
    // Takes the place of the tiles two slots before: most probably everyone is done with those.
    __device__ void request_rows_behind() {
        if (warp_index() != 0) return;
        if (lane() == 0 && begun_ >= 2 && rows_asked_ < tiles_) {
            const bool wrapped = slot_ < 2;
            const int again = wrapped ? slot_ - 2 + slots_ : slot_ - 2;
            barrier_wait(read(again), turn_ ^ (wrapped ? 1 : 0));
            request_rows(again);
        }
        sync_warp();
    }

    __device__ void read_tile(int t, int part, LaneTile<f>& out) const {
        const uint32_t at = weights_ + slot_ * (batch_warps * Slots::weight_bytes) + part * f.tile_bytes();
        const int l = lane(), g = l / 4;
#pragma unroll
        for (int j = 0; j < f.words4(); ++j) out.codes[j] = load_shared16(at + j * 512 + l * 16);
        read_words<4 * f.extra>(at + f.extra_at() + l * 4 * f.extra, out.extra);
        read_words<f.lane_scales()>(at + f.scales_at() + g * f.lane_scales(), out.scales);
        if constexpr (f.factor())
            read_words<f.lane_super()>(
                supers_ + t / static_cast<int>(run_step) * Slots::super + g * f.lane_super(), out.super);
    }

    template <int set>
    __device__ void multiply_tile(int t) {
        constexpr bool begins = Slots::tiles == 1 || set == 0, ends = Slots::tiles == 1 || set == 1;
        if constexpr (begins) barrier_wait(own_full(slot_), turn_);
        LaneTile<f> tile;
        read_tile(t, begins ? 0 : 1, tile);
#pragma unroll
        for (int s = 0; s < 4; ++s) fragment(tile, s, 0, a_[set][s]);
        if constexpr (ends) {
            sync_warp();  // all lanes have read it
            if (lane() == 0) request_weights(slot_);
        }
        if constexpr (begins) {
            request_rows_behind();
            barrier_wait(full(slot_), turn_);
        }
        const std::byte* const x = shared_at(memory_ + slot_ * Slots::x_bytes + (begins ? 0 : Slots::x_tile));
        warpgroup_begin();
#pragma unroll
        for (int step = 0; step < 4; ++step) warpgroup_multiply<n>(sums.d, a_[set][step], x, step);
        warpgroup_commit();
        warpgroup_wait<1>();
        if constexpr (begins) {
            sync_warp();  // all lanes have waited for the products with the slot before
            if (begun_ > 0 && lane() == 0) barrier_arrive(read(slot_ > 0 ? slot_ - 1 : slots_ - 1));
            ++begun_;
        }
        if constexpr (ends)
            if (++slot_ == slots_) slot_ = 0, turn_ ^= 1;
    }

    const int tiles_, slots_;
    const uint32_t memory_, weights_, supers_, barriers_;
    const std::byte *weights_from_, *supers_from_, *x_from_;
    int weights_asked_ = 0, rows_asked_ = 0;  // tiles
    int slot_ = 0, begun_ = 0;                // slots
    uint32_t turn_ = 0;
    uint32_t a_[2][4][4];
};

// Leaves the sums of a run; true for the last of a row block's, whose sums are then those of all; the whole
// warp.
template <int n>
__device__ bool join_runs(Words4* partial, int run, int runs, int* done, Sums<n>& sums) {
    if (!leave_run(partial, run, runs, done, sums)) return false;
    sums = Sums<n>{};
    for (int r = 0; r < runs; ++r)
#pragma unroll
        for (int i = 0; i < n; ++i) {
            const Words4 part = partial[(r * n + i) * 32 + lane()];
#pragma unroll
            for (int j = 0; j < 4; ++j) sums.d[i][j] += bits_float(part.w[j]);
        }
    if (lane() == 0) *done = 0;
    return true;
}

// Block x: a run of 128 rows of one of the weights.
template <int n>
__global__ void __launch_bounds__(warpgroup_threads, 2) batch_kernel(BatchArgs args) {
    if (!has_warpgroups()) return;
    int64_t group = block_x();
    int which = 0;
    const auto blocks_of = [&](int w) {
        return (args.segment[w].blocks + batch_warps - 1) / batch_warps * args.runs[w];
    };
    while (which + 1 < args.segments && group >= blocks_of(which)) group -= blocks_of(which++);
    const Segment& s = args.segment[which];
    const int runs = args.runs[which], run = static_cast<int>(group % runs);
    const int64_t k = args.x.cols, block = group / runs * batch_warps + warp_index();
    const int first = run * args.run_tiles[which], left = static_cast<int>(TileFormat::tiles(k)) - first,
              tiles = left < args.run_tiles[which] ? left : args.run_tiles[which];
    int64_t block_bytes = 0;
    Sums<n> sums;
    with_format<codes_without_table>(args.code[which], [&]<uint32_t code>() {
        constexpr TileFormat f = format_of(code);
        block_bytes = f.block_bytes(k);
        // One behind the last is read as the last.
        BatchProduct<f, n> product(shared_memory(),
                                   s.data + (block < s.blocks ? block : s.blocks - 1) * block_bytes,
                                   args.prepared, k, first, tiles);
        sync_block();
        product.begin_weights();
        wait_for_previous();
        product.begin_rows();
        product.multiply();
        sums = product.sums;
    });
    if (block >= s.blocks) return;
    if (runs > 1) {
        Words4* const partial = args.partial + args.first_partial[which] + block * runs * n * 32;
        if (!join_runs(partial, run, runs, args.done + args.first_done[which] + block, sums)) return;
    }
    store_fragments(args, s, block_bytes, block, 0, args.prepared.inverse, sums);
}

// Rows of x as they are multiplied.
int64_t batch_rows(int64_t rows) { return rows <= 32 ? 32 : rows <= 64 ? 64 : 128; }

struct Runs {
    int64_t count, tiles;  // of each but the last
};

// Enough for two blocks of each multiprocessor of the largest cards: by the weight's shape alone, for a row's
// bits depend on them. Where there are nearly enough row blocks, sums would travel for little.
Runs runs_of(int64_t blocks, int64_t cols) {
    const int64_t groups = blocks_for(blocks, batch_warps), tiles = TileFormat::tiles(cols);
    const int64_t wanted = groups >= 96 ? 1 : std::min(blocks_for(256, groups), int64_t{8});
    const int64_t count = std::max(std::min(wanted, tiles / least_run), blocks_for(tiles, most_run));
    const int64_t each = round_up(blocks_for(tiles, count), run_step);
    return {blocks_for(tiles, each), each};
}

// In 16 bytes.
int64_t partial_words(int64_t blocks, const Runs& runs, int64_t rows) {
    return runs.count > 1 ? blocks * runs.count * (rows / 8) * 32 : 0;
}

}  // namespace

size_t batch_prepared_bytes(int64_t rows, int64_t cols) { return rows_bytes(batch_rows(rows), cols); }

size_t batch_partial_bytes(int64_t rows, int64_t cols, std::span<const Tensor> weights) {
    int64_t words = 0;
    for (const Tensor& w : weights) {
        const int64_t blocks = ceil_div(w.rows, int64_t{16});
        words += partial_words(blocks, runs_of(blocks, cols), batch_rows(rows));
    }
    return static_cast<size_t>(words) * sizeof(Words4);
}

bool multiply_batch(const Exec& e, const ProductArgs& product, std::span<const Type> types,
                    std::span<std::byte> prepared, std::span<std::byte> partial) {
    const int64_t rows = batch_rows(product.x.rows), cols = product.x.cols;
    if (size_t{batch_shared} > e.card->shared_per_block) return false;
    BatchArgs a{{product}, rows_in(prepared, rows, cols), {}, {}, {}, {}, {}, nullptr, nullptr};
    a.partial = reinterpret_cast<Words4*>(partial.data());
    a.done = e.counters;
    int64_t grid = 0, words = 0, counters = 0;
    for (size_t i = 0; i < types.size(); ++i) {
        a.code[i] = format_code(tiles_of(types[i]));
        if (!codes_without_table.has(a.code[i])) return false;
        const int64_t blocks = a.segment[i].blocks;
        const Runs runs = runs_of(blocks, cols);
        a.runs[i] = static_cast<int32_t>(runs.count);
        a.run_tiles[i] = static_cast<int32_t>(runs.tiles);
        a.first_partial[i] = words;
        a.first_done[i] = static_cast<int32_t>(counters);
        words += partial_words(blocks, runs, rows);
        counters += runs.count > 1 ? blocks : 0;
        grid += blocks_for(blocks, batch_warps) * runs.count;
    }
    if (static_cast<size_t>(words) * sizeof(Words4) > partial.size() || counters > attention_counters)
        return false;
    prepare_rows(e, a, a.prepared);
    const Dims dims{grid, 1, 1, warpgroup_threads, size_t{batch_shared}};
    if (rows == 32)
        launch(batch_kernel<4>, dims, *e.stream, a);
    else if (rows == 64)
        launch(batch_kernel<8>, dims, *e.stream, a);
    else
        launch(batch_kernel<16>, dims, *e.stream, a);
    return true;
}

}  // namespace nibble::cuda
