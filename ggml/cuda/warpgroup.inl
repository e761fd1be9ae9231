// What kernels for many rows on cards of generation 9.0 share: four warps multiply together, weights from
// registers by rows of x in shared memory (wgmma), which is the only way to their tensor cores' full rate.

// Other products add the columns in another order, so these do not have their bits, but they too depend on
// the row and the weights alone.
//
// Per 64 columns of the weights a block of 256 x 128 results does 4 MFLOP in 1024 clocks, and its two
// warpgroups turn 16384 codes into fragments meanwhile.

// Rows of x as the tensor cores read them from shared memory. A tile is 64 columns of 128 rows, 128 bytes
// each, and lies in one piece: [tile of columns][row][128 bytes], in f16 times a power of two that is the
// row's own. Its 16-byte pieces are exchanged, number i with i ^ (row % 8), so that eight rows of a piece lie
// in all banks. Columns are in the order of the weights' fragments (tiles.h): of four neighbours in 16 the
// first two go to the first eight, the others to the last eight.
struct WarpgroupRows {
    std::byte* values;
    float* inverse;  // of the row's power of two
    int64_t padded;  // rows, to whole tiles
    static constexpr int rows = 128, row_bytes = 128, tile_bytes = rows * row_bytes;

    struct Column {
        std::byte* values;
        int64_t step;
        int swap;
        __device__ void put(int unit, Words2 w) const {
            std::byte* const tile = values + unit / 16 * step + unit % 4 * 4;
            const int piece = unit / 4 % 4 * 2;
#pragma unroll
            for (int i = 0; i < 2; ++i)
                *reinterpret_cast<uint32_t*>(tile + ((piece + i) ^ swap) * 16) = w.w[i];
        }
    };
    __device__ Column column(int64_t r) const {
        return {values + r * row_bytes, padded * row_bytes, static_cast<int>(r % 8)};
    }
};

int64_t padded_rows(int64_t rows) { return round_up(rows, int64_t{WarpgroupRows::rows}); }

int64_t warpgroup_value_bytes(int64_t rows, int64_t cols) {
    return TileFormat::tiles(cols) * padded_rows(rows) * WarpgroupRows::row_bytes;
}

// Memory of warpgroup_scratch() bytes cut into its parts.
WarpgroupRows warpgroup_rows(std::span<std::byte> memory, int64_t rows, int64_t cols) {
    std::byte* const behind = memory.data() + warpgroup_value_bytes(rows, cols);
    return {memory.data(), reinterpret_cast<float*>(behind), padded_rows(rows)};
}

constexpr int block_warpgroups = 2, warpgroup_threads = 128 * block_warpgroups;  // of a block

// A block's two warpgroups have `blocks` times 64 rows of the weights each, and the same 128 rows of x.
template <TileFormat f, int blocks>
struct WarpgroupShape {
    static constexpr int stages = 4, row_blocks = 4 * blocks * block_warpgroups;
    static constexpr size_t shared_bytes = table_bytes(f) + size_t{stages} * WarpgroupRows::tile_bytes;
    // Narrow ones share a multiprocessor.
    static constexpr int resident = blocks == 1 ? 2 : 1;
};

// A thread's copies of each stage, a sixteenth of its bytes.
struct RowCopies {
    static constexpr int threads = warpgroup_threads, turns = WarpgroupRows::tile_bytes / 16 / threads;
    const std::byte* from;
    int64_t step;
    uint32_t on = 0;  // rows that are there, by bit; the others become zeros

    __device__ RowCopies(const WarpgroupRows& x, int64_t first, int64_t rows)
        : from(x.values + first * x.row_bytes + thread_index() * 16), step(x.padded * x.row_bytes) {
        for (int n = 0; n < turns; ++n) {
            const int64_t row = first + (thread_index() + n * threads) * 16 / x.row_bytes;
            on |= static_cast<uint32_t>(row < rows) << n;
        }
    }
    __device__ void request(std::byte* stage) {
#pragma unroll
        for (int n = 0; n < turns; ++n)
            copy_async16(stage + (thread_index() + n * threads) * 16, from + n * threads * 16, on >> n & 1);
        from += step;
    }
};

// What a warp makes of `blocks` row blocks and a block's 128 rows of x.
template <TileFormat f, int blocks>
class WarpgroupProduct {
  public:
    Sums<16> sums[blocks] = {};

    // Begins to read the weights: `weight` is of each row block.
    __device__ WarpgroupProduct(const std::byte* const (&weight)[blocks], int64_t k)
        : tiles_(static_cast<int>(TileFormat::tiles(k))) {
#pragma unroll
        for (int i = 0; i < blocks; ++i) weight_[i] = weight[i];
        load(0);
    }

    // `copies` bring the rows of x into `stages`, tile after tile.
    template <class Copies>
    __device__ void multiply(Copies& copies, std::byte* stages, uint32_t table) {
        for (int t = 0; t < n_stages - 2; ++t) {
            if (t < tiles_) copies.request(stages + t * stage_bytes);
            copy_commit();
        }
        if constexpr (f.table) sync_block();
        if constexpr (values) make(a_[0], table);
        // In pairs without a condition: with one, ptxas would let products wait for each other.
        int t = 0;
        for (; t + 1 < tiles_; t += 2) {
            multiply_tile<0>(t, copies, stages, table);
            multiply_tile<1>(t + 1, copies, stages, table);
        }
        warpgroup_wait<0>();
        if (t < tiles_) multiply_tile<0>(t, copies, stages, table);
        warpgroup_wait<0>();
        copy_wait<0>();
#pragma unroll
        for (int i = 0; i < blocks; ++i) warpgroup_results<16>(sums[i].d);
    }

  private:
    static constexpr bool values = f.real();
    static constexpr int n_stages = WarpgroupShape<f, blocks>::stages,
                         stage_bytes = WarpgroupRows::tile_bytes;
    using Fragments = uint32_t[blocks][4][4];

    __device__ void load(int tile) {  // the last one again instead of one behind it
#pragma unroll
        for (int i = 0; i < blocks; ++i)
            load_tile<f>(tile_place<f>(weight_[i], tiles_, tile < tiles_ ? tile : tiles_ - 1), 0, codes_[i]);
    }
    __device__ void make(Fragments& fragments, uint32_t table) {
#pragma unroll
        for (int i = 0; i < blocks; ++i)
#pragma unroll
            for (int s = 0; s < 4; ++s) fragment(codes_[i], s, table, fragments[i][s]);
    }

    // While the products of a tile run, the fragments of the next are made and its rows of x come.
    template <int side, class Copies>
    __device__ void multiply_tile(int t, Copies& copies, std::byte* stages, uint32_t table) {
        if constexpr (!values) {
            make(a_[side], table);
            load(t + 1);
        }
        copy_wait<n_stages - 3>();
        publish_shared();
        sync_block();
        // Every warp has waited for the products that read this stage, two tiles ago.
        if (t + n_stages - 2 < tiles_) copies.request(stages + (t + n_stages - 2) % n_stages * stage_bytes);
        copy_commit();
        warpgroup_begin();
#pragma unroll
        for (int step = 0; step < 4; ++step)
#pragma unroll
            for (int i = 0; i < blocks; ++i)
                warpgroup_multiply128(sums[i].d, a_[side][i][step], stages + t % n_stages * stage_bytes,
                                      step);
        warpgroup_commit();
        warpgroup_wait<1>();
        // Values are fragments as they are, so they come when the products before have left the registers.
        if constexpr (values) {
            load(t + 1);
            make(a_[1 - side], table);
        }
    }

    const std::byte* weight_[blocks];
    int tiles_;
    LaneTile<f> codes_[blocks];
    Fragments a_[2];
};
