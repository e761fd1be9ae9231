// What kernels for many rows on cards of generation 9.0 share: four warps multiply together, weights from
// registers by rows of x in shared memory (wgmma), which is the only way to their tensor cores' full rate.

// Other products add the columns in another order, so these do not have their bits, but they too depend on
// the row and the weights alone.
//
// Per 64 columns of the weights a block of 128 x 256 results does 4 MFLOP in 1024 clocks, and its two
// warpgroups turn 8192 codes into fragments meanwhile: a fragment, once made, is multiplied by as many rows
// of x as there are registers for sums.

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

// Of rows padded to whole tiles: their values, and with what takes them back.
int64_t value_bytes(int64_t padded, int64_t cols) {
    return TileFormat::tiles(cols) * padded * WarpgroupRows::row_bytes;
}
inline size_t rows_bytes(int64_t padded, int64_t cols) {
    return static_cast<size_t>(value_bytes(padded, cols)) + static_cast<size_t>(padded) * sizeof(float);
}

// Memory of rows_bytes() cut into its parts.
WarpgroupRows rows_in(std::span<std::byte> memory, int64_t padded, int64_t cols) {
    return {memory.data(), reinterpret_cast<float*>(memory.data() + value_bytes(padded, cols)), padded};
}
inline WarpgroupRows warpgroup_rows(std::span<std::byte> memory, int64_t rows, int64_t cols) {
    return rows_in(memory, padded_rows(rows), cols);
}

constexpr int block_warpgroups = 2, warpgroup_threads = 128 * block_warpgroups;  // of a block

// Tiles of x on their way to a block, of `halves` times 128 rows.
template <int halves>
struct WarpgroupStages {
    static constexpr int count = 5, bytes = halves * WarpgroupRows::tile_bytes, all_bytes = count * bytes;
};

// A block's two warpgroups have 64 rows of the weights each, and the same `halves` times 128 rows of x.
template <int halves>
struct WarpgroupShape {
    static constexpr int row_blocks = 4 * block_warpgroups, columns = halves * WarpgroupRows::rows;
};

// Copies by all threads, `Request` says of what: a barrier of the block per tile makes them known.
template <class Request>
class ThreadCopies {
  public:
    using Stages = WarpgroupStages<1>;
    static constexpr size_t shared_bytes = Stages::all_bytes;

    __device__ ThreadCopies(std::byte* memory, const Request& request) : memory_(memory), request_(request) {}
    __device__ void begin(int tiles) {
        tiles_ = tiles;
        for (int t = 0; t < ahead; ++t) request(t);
    }
    // The tile, when it is there; the products of the tile two before must be done.
    __device__ const std::byte* wait(int t) {
        copy_wait<ahead - 1>();
        publish_shared();
        sync_block();
        request(t + ahead);
        return memory_ + t % Stages::count * Stages::bytes;
    }
    __device__ void release() {}
    __device__ void end() { copy_wait<0>(); }

  private:
    static constexpr int ahead = Stages::count - 2;
    __device__ void request(int t) {
        if (t < tiles_) request_(memory_ + t % Stages::count * Stages::bytes);
        copy_commit();
    }

    std::byte* memory_;
    Request request_;
    int tiles_ = 0;
};

// Tiles of neighbouring rows, each of which lies in one piece: one thread asks for all of it. Warps wait for
// a stage to be full, and that thread for a stage that it fills again to have been read, but never for each
// other.
template <int halves>
class RowCopies {
  public:
    using Stages = WarpgroupStages<halves>;
    static constexpr size_t shared_bytes = Stages::all_bytes + 2 * Stages::count * barrier_bytes;

    // Others may wait behind the next barrier of the block. The address comes from a shuffle: knowing nothing
    // about it, the compiler does not make it anew at every use.
    __device__ RowCopies(std::byte* memory, const WarpgroupRows& x, int64_t first)
        : memory_(shuffle(shared_address(memory), 0)),
          from_(x.values + first * WarpgroupRows::row_bytes),
          step_(x.padded * WarpgroupRows::row_bytes) {
        const int64_t rows = x.padded - first, most = halves * WarpgroupRows::rows;
        bytes_ = static_cast<int>(rows < most ? rows : most) * WarpgroupRows::row_bytes;
        if (thread_index() != 0) return;
        for (int i = 0; i < Stages::count; ++i) {
            barrier_begin(full(i), 1);
            barrier_begin(read(i), warpgroup_threads / 32);
        }
        publish_barriers();
    }
    __device__ void begin(int tiles) {
        tiles_ = tiles;
        if (thread_index() == 0)
            for (int t = 0; t < Stages::count && t < tiles; ++t) request(t);
    }
    // The tile, the one after that of the last call, when it is there.
    __device__ const std::byte* wait(int t) {
        // What takes the place of the tile two before: most probably everyone is done with that one.
        if (warp_index() == 0) {
            if (lane() == 0 && t >= 2 && t - 2 + Stages::count < tiles_) {
                const bool wrapped = stage_ < 2;
                const int again = wrapped ? stage_ - 2 + Stages::count : stage_ - 2;
                barrier_wait(read(again), turn_ ^ (wrapped ? 1 : 0));
                request(again);
            }
            sync_warp();
        }
        barrier_wait(full(stage_), turn_);
        return shared_at(memory_ + static_cast<uint32_t>(stage_ * Stages::bytes));
    }
    // The warp's products with the tile before that of the last call are done.
    __device__ void release() {
        sync_warp();  // all of its lanes have waited for them
        if (last_ >= 0 && lane() == 0) barrier_arrive(read(last_));
        last_ = stage_;
        if (++stage_ == Stages::count) stage_ = 0, turn_ ^= 1;
    }
    __device__ void end() {}

  private:
    __device__ uint32_t full(int stage) const {
        return memory_ + static_cast<uint32_t>(Stages::all_bytes + stage * barrier_bytes);
    }
    __device__ uint32_t read(int stage) const { return full(stage + Stages::count); }
    __device__ void request(int stage) {
        barrier_expect(full(stage), bytes_);
        copy_bulk(memory_ + static_cast<uint32_t>(stage * Stages::bytes), from_, bytes_, full(stage));
        from_ += step_;
    }

    uint32_t memory_;
    const std::byte* from_;
    int64_t step_;
    int bytes_, tiles_ = 0;
    int stage_ = 0, last_ = -1;
    uint32_t turn_ = 0;
};

// What a warp makes of a row block and a block's rows of x. `ahead`: tiles of weights on their way, 2, or 1
// where registers are few.
template <TileFormat f, int halves, int ahead = 2>
class WarpgroupProduct {
  public:
    Sums<16 * halves> sums{};

    // Begins to read the row block.
    __device__ WarpgroupProduct(const std::byte* weight, int64_t k)
        : weight_(weight), tiles_(static_cast<int>(TileFormat::tiles(k))) {
#pragma unroll
        for (int i = 0; i < ahead; ++i) load(i, i);
    }
    __device__ int tiles() const { return tiles_; }

    // `copies` bring the rows of x, tile after tile, and have begun.
    template <class Copies>
    __device__ void multiply(Copies& copies, uint32_t table) {
        // One for each set without a condition: with one, ptxas would let products wait for each other.
        int t = 0;
        for (; t + sets <= tiles_; t += sets) {
            multiply_tile<0>(t, copies, table);
            multiply_tile<1>(t + 1, copies, table);
            if constexpr (sets == 3) multiply_tile<2>(t + 2, copies, table);
        }
        warpgroup_wait<0>();
        if (t < tiles_) multiply_tile<0>(t, copies, table);
        warpgroup_wait<0>();
        if constexpr (sets == 3) {
            if (t + 1 < tiles_) multiply_tile<1>(t + 1, copies, table);
            warpgroup_wait<0>();
        }
        copies.end();
        warpgroup_results<16 * halves>(sums.d);
    }

  private:
    // Values are fragments as they are: they are read to where products take them from, once the products
    // before have left it. Not copied to there, for ptxas moves copies to before the wait for those products.
    static constexpr bool in_place = f.real();
    static constexpr int sets = in_place ? ahead + 1 : 2;  // of fragments

    // The last tile again instead of one behind it. `place`: of codes, or the set of values.
    __device__ void load(int tile, int place) {
        const TilePlace from = tile_place<f>(weight_, tiles_, tile < tiles_ ? tile : tiles_ - 1);
        if constexpr (in_place) {
            LaneTile<f> values;
            load_tile<f>(from, 0, values);
#pragma unroll
            for (int s = 0; s < 4; ++s) fragment(values, s, 0, a_[place][s]);
        } else {
            load_tile<f>(from, 0, codes_[place]);
        }
    }

    // While the products of a tile run, the fragments of the next are made.
    template <int set, class Copies>
    __device__ void multiply_tile(int t, Copies& copies, uint32_t table) {
        if constexpr (!in_place) {
#pragma unroll
            for (int s = 0; s < 4; ++s) fragment(codes_[set % ahead], s, table, a_[set][s]);
            load(t + ahead, set % ahead);
        }
        const std::byte* const x = copies.wait(t);
        warpgroup_begin();
#pragma unroll
        for (int step = 0; step < 4; ++step)
            if constexpr (halves == 2)
                warpgroup_multiply256(sums.d, a_[set][step], x, step);
            else
                warpgroup_multiply128(sums.d, a_[set][step], x, step);
        warpgroup_commit();
        warpgroup_wait<1>();
        copies.release();
        if constexpr (in_place) load(t + ahead, (set + ahead) % sets);  // the set of the tile before
    }

    const std::byte* weight_;
    int tiles_;
    LaneTile<f> codes_[in_place ? 1 : ahead];
    uint32_t a_[sets][4][4];
};

// Where a block has its rows of x, and behind their tiles what takes the results back; after a barrier by the
// row of x.
template <int halves>
struct BlockRows {
    using Shape = WarpgroupShape<halves>;
    static constexpr size_t shared_bytes = RowCopies<halves>::shared_bytes + Shape::columns * sizeof(float);

    std::byte* memory;
    const WarpgroupRows& x;
    int64_t first;

    // The product with them, which begins when they are there; the whole block.
    template <class Product>
    __device__ __forceinline__ void multiply(Product& product, uint32_t table) const {
        RowCopies<halves> copies(memory, x, first);
        sync_block();
        wait_for_previous();
        copies.begin(product.tiles());
        if (const int i = thread_index(); i < Shape::columns && first + i < x.padded)
            factors()[i] = x.inverse[first + i];
        product.multiply(copies, table);
    }
    __device__ const float* inverse() const { return factors() - first; }

  private:
    __device__ float* factors() const {
        return reinterpret_cast<float*>(memory + RowCopies<halves>::shared_bytes);
    }
};
