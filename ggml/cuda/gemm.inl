// The product for many rows of x: a block makes 128 x 128 of the result, its warps 64 x 32 each. Tiles of the
// weights and of x come through shared memory, three stages deep; every sum is formed as in BlockProduct.
//
// Per 64 columns of the weights a block does 1 MFLOP and reads 16 KiB of x and 4.6 KiB of 4-bit weights
// (mostly from the L2 cache), so the tensor cores are the limit: per step of 16 columns a warp issues 16 mma
// instructions, 36 to make fragments of 4-bit codes and 20 to apply scales.

template <TileFormat f>
struct GemmShape {
    static constexpr int row_blocks = 8, columns = 128, stages = 3;
    static constexpr int rows_per_warp = 4, columns_per_warp = 4;  // in blocks of 16, in groups of 8
    static constexpr int weight_bytes = row_blocks * f.tile_bytes();
    static constexpr int x_bytes = columns * Activations<8>::value_bytes;
    static constexpr int sum_bytes = f.min ? 4 * columns * 4 : 0;
    static constexpr int stage_bytes = weight_bytes + x_bytes + sum_bytes;
    static constexpr size_t shared_bytes = table_bytes(f) + size_t{stages} * stage_bytes;
};

// Where a block is: which row blocks of which weight, and which columns.
struct GemmPlace {
    const std::byte* weight;  // its first row block
    int64_t blocks;           // of the weight from there on
    int64_t column;           // first
};

// Asks for the tile `index` of the block's weights and columns.
template <TileFormat f>
__device__ void request_stage(const GemmPlace& at, int64_t k, int64_t rows, const Activations<8>& x,
                              int64_t index, std::byte* stage) {
    using S = GemmShape<f>;
    using A = Activations<8>;
    constexpr int pieces = f.tile_bytes() / 16;
    for (int i = thread_index(); i < S::row_blocks * pieces; i += block_threads()) {
        const int block = i / pieces;
        const bool on = block < at.blocks;
        const std::byte* const from =
            at.weight + (on ? block : 0) * f.block_bytes(k) + index * f.tile_bytes();
        copy_async16(stage + i * 16, from + i % pieces * 16, on);
    }
    // Groups of eight columns one after the other, each as it is; columns that are not there become zeros.
    stage += S::weight_bytes;
    const int64_t first = at.column / 8;
    for (int i = thread_index(); i < S::x_bytes / 16; i += block_threads()) {
        constexpr int group_pieces = A::tile_bytes / 16;
        const int64_t group = first + i / group_pieces;
        const bool on = 8 * group + i % (A::half_bytes / 16) / 4 < rows;
        const std::byte* const from =
            x.values + ((on ? group : 0) * x.tiles + index) * A::tile_bytes + i % group_pieces * 16;
        copy_async16(stage + i * 16, from, on);
    }
    if constexpr (f.min) {
        stage += S::x_bytes;
        for (int i = thread_index(); i < S::sum_bytes / 16; i += block_threads()) {
            const bool on = at.column + i < rows;
            const float* const from = x.sums + ((on ? first + i / 8 : 0) * x.tiles + index) * A::tile_sums;
            copy_async16(stage + i * 16, from + i % 8 * 4, on);
        }
    }
}

template <TileFormat f>
__device__ void shared_tile(const std::byte* at, const std::byte* supers, LaneTile<f>& out) {
    const int l = lane(), g = l / 4;
#pragma unroll
    for (int i = 0; i < f.words4(); ++i)
        out.codes[i] = *reinterpret_cast<const Words4*>(at + i * 512 + l * 16);
    const auto* const extra = reinterpret_cast<const uint32_t*>(at + f.extra_at() + l * 4 * f.extra);
    for (int i = 0; i < f.extra; ++i) out.extra[i] = extra[i];
    const auto* const scales = reinterpret_cast<const uint32_t*>(at + f.scales_at() + g * f.lane_scales());
    for (int i = 0; i < f.lane_scales() / 4; ++i) out.scales[i] = scales[i];
    load_words<f.lane_super()>(supers + g * f.lane_super(), out.super);
}

// One warp's share of a stage.
template <TileFormat f>
__device__ void multiply_stage(const std::byte* stage, const std::byte* const (&supers)[4],
                               const uint32_t* table, Sums<4> (&sums)[4]) {
    using S = GemmShape<f>;
    constexpr int group_steps = f.real() ? 1 : f.group / 16;
    const int block = warp_index() / 4 * S::rows_per_warp,
              column = warp_index() % 4 * 8 * S::columns_per_warp;
    using A = Activations<8>;
    const std::byte* const x = stage + S::weight_bytes + column * A::value_bytes + lane() * 16;
    const auto* const step_sums =
        reinterpret_cast<const Words4*>(stage + S::weight_bytes + S::x_bytes) + column + lane() % 4 * 2;
    Words4 b[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < 4; ++j)
            b[half][j] = *reinterpret_cast<const Words4*>(x + j * A::tile_bytes + half * A::half_bytes);
    GroupTotals<f, 4> totals;
    if constexpr (f.min) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int c = 0; c < 2; ++c) totals.set(j, c, step_sums[8 * j + c]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        LaneTile<f> tile;
        shared_tile(stage + (block + i) * f.tile_bytes(), supers[i], tile);
#pragma unroll
        for (int first = 0; first < 4; first += group_steps) {
            Sums<4> part{};
            Sums<4>& to = f.real() ? sums[i] : part;
#pragma unroll
            for (int s = first; s < first + group_steps; ++s) {
                uint32_t a[4];
                fragment(tile, s, table, a);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const uint32_t values[2] = {b[s / 2][j].w[s % 2 * 2], b[s / 2][j].w[s % 2 * 2 + 1]};
                    mma_f16(to.d[j], a, values);
                }
            }
            if constexpr (!f.real()) apply_scales<f, 4, 8>(tile, first / group_steps, totals, part, sums[i]);
        }
    }
}

// Block x: 128 rows of x; block y: 128 rows of one of the weights.
template <uint32_t code>
__global__ void __launch_bounds__(256) gemm_kernel(MatmulArgs a) {
    constexpr TileFormat f = format_of(code);
    using S = GemmShape<f>;
    std::byte* const stages = shared_memory() + table_bytes(f);
    const uint32_t* table = nullptr;
    int64_t first = int64_t{block_y()} * S::row_blocks;
    int which = 0;
    const auto padded = [&](int w) {
        return (a.segment[w].blocks + S::row_blocks - 1) / S::row_blocks * S::row_blocks;
    };
    while (which + 1 < a.segments && first >= padded(which)) first -= padded(which++);
    const Segment& s = a.segment[which];
    const int64_t k = a.x.cols, rows = a.x.rows, tiles = TileFormat::tiles(k), run = run_tiles(tiles);
    const GemmPlace at{s.data + first * f.block_bytes(k), s.blocks - first, block_x() * S::columns};
    if constexpr (f.table) table = fill_table(a.table);

    const int mine = warp_index() / 4 * S::rows_per_warp;
    const std::byte* supers[4];
    for (int i = 0; i < 4; ++i)
        supers[i] = at.weight + (mine + i < at.blocks ? mine + i : 0) * f.block_bytes(k) + f.supers_at(k);

    Sums<4> sums[4] = {}, total[4] = {};
    for (int i = 0; i < S::stages - 1; ++i) {
        if (i < tiles) request_stage<f>(at, k, rows, a.prepared, i, stages + i * S::stage_bytes);
        copy_commit();
    }
    for (int64_t t = 0; t < tiles; ++t) {
        copy_wait<S::stages - 2>();
        sync_block();
        const int64_t next = t + S::stages - 1;
        if (next < tiles)
            request_stage<f>(at, k, rows, a.prepared, next, stages + next % S::stages * S::stage_bytes);
        copy_commit();
        const std::byte* now[4];
        for (int i = 0; i < 4; ++i) now[i] = supers[i] + t / 4 * 8 * f.lane_super();
        multiply_stage<f>(stages + t % S::stages * S::stage_bytes, now, table, sums);
        if ((t + 1) % run != 0 && t + 1 != tiles) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    total[i].d[j][c] += sums[i].d[j][c];
                    sums[i].d[j][c] = 0;
                }
    }
    copy_wait<0>();
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int in_block = lane() / 4 + c / 2 * 8;
                const int64_t block = first + mine + i, row = 16 * block + in_block;
                const int64_t column = at.column + warp_index() % 4 * 32 + 8 * j + lane() % 4 * 2 + c % 2;
                if (row >= s.rows || column >= rows) continue;
                const float factor = row_factor<f>(s.data + block * f.block_bytes(k), k, in_block);
                store(a, s, row, column, total[i].d[j][c] * a.prepared.inverse[column] * factor);
            }
}
