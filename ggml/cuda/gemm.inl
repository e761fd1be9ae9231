// The product for many rows of x: a block makes 128 x 128 of the result, its warps 32 x 64 each. Tiles of the
// weights and of x come through shared memory, three stages deep, or two where a card has no room for three;
// every sum is formed as in BlockProduct.
//
// Per 64 columns of the weights a block does 1 MFLOP and reads 16 KiB of x and 4.6 KiB of 4-bit weights
// (mostly from the L2 cache), so the tensor cores would be the limit if it were not for the instructions
// around them: the fewer warps make fragments of the same codes, the fewer there are.

template <TileFormat f>
struct GemmShape {
    static constexpr int row_blocks = 8, columns = 128;
    static constexpr int warp_rows = 2, warp_columns = 8;  // of a warp, in blocks of 16 and groups of 8
    static constexpr int warps_across = columns / (8 * warp_columns);
    static __device__ int first_row() { return warp_index() / warps_across * warp_rows; }
    static __device__ int first_column() { return warp_index() % warps_across * 8 * warp_columns; }
    static constexpr int weight_bytes = row_blocks * f.tile_bytes();
    static constexpr int x_bytes = columns * Activations<8>::value_bytes;
    static constexpr int stage_bytes = weight_bytes + x_bytes;
    static constexpr size_t shared_bytes(int stages) {
        return table_bytes(f) + static_cast<size_t>(stages) * stage_bytes;
    }
};

// Where a block is: which row blocks of which weight, and which columns.
struct GemmPlace {
    const std::byte* weight;  // its first row block
    int64_t blocks;           // of the weight from there on
    int64_t column;           // first
};

// A thread's copies of each stage: from where they were in the last, one tile on.
template <TileFormat f>
struct StageCopies {
    using S = GemmShape<f>;
    using A = Activations<8>;
    static constexpr int threads = 256, pieces = f.tile_bytes() / 16, weight_pieces = S::row_blocks * pieces;
    static constexpr int weight_turns = (weight_pieces + threads - 1) / threads;
    static constexpr int x_turns = S::x_bytes / 16 / threads;

    const std::byte* weight[weight_turns];
    const std::byte* x;
    int64_t x_step;
    uint32_t on = 0;  // what is there, by bit: weights, x; the rest becomes zeros

    __device__ StageCopies(const GemmPlace& at, int64_t k, int64_t rows, const Activations<8>& prepared) {
        const int thread = thread_index();
#pragma unroll
        for (int n = 0; n < weight_turns; ++n) {
            const int i = thread + n * threads, block = i / pieces;
            const bool there = block < at.blocks;
            weight[n] = at.weight + (there ? block : 0) * f.block_bytes(k) + i % pieces * 16;
            on |= static_cast<uint32_t>(there) << n;
        }
        // Groups of eight columns one after the other, each as it is.
        constexpr int group_pieces = A::tile_bytes / 16, groups = threads / group_pieces;
        const int64_t group = at.column / 8 + thread / group_pieces;
        x = prepared.values + group * prepared.tiles * A::tile_bytes + thread % group_pieces * 16;
        x_step = groups * prepared.tiles * A::tile_bytes;
#pragma unroll
        for (int n = 0; n < x_turns; ++n) {
            const bool there = 8 * (group + n * groups) + thread % (A::half_bytes / 16) / 4 < rows;
            on |= static_cast<uint32_t>(there) << (weight_turns + n);
        }
    }

    __device__ void request(std::byte* stage) {
        std::byte* const to = stage + thread_index() * 16;
#pragma unroll
        for (int n = 0; n < weight_turns; ++n) {
            if (thread_index() + n * threads < weight_pieces)
                copy_async16(to + n * threads * 16, weight[n], on >> n & 1);
            weight[n] += f.tile_bytes();
        }
#pragma unroll
        for (int n = 0; n < x_turns; ++n)
            copy_async16(to + S::weight_bytes + n * threads * 16, x + n * x_step,
                         on >> (weight_turns + n) & 1);
        x += A::tile_bytes;
    }
};

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

// One warp's share of a stage, a half of the columns at a time.
template <TileFormat f, int n_rows, int n>
__device__ void multiply_stage(const std::byte* stage, const std::byte* const (&supers)[n_rows],
                               uint32_t table, Sums<n> (&sums)[n_rows]) {
    using S = GemmShape<f>;
    using A = Activations<8>;
    const std::byte* const x = stage + S::weight_bytes + S::first_column() * A::value_bytes + lane() * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        Words4 b[n];
#pragma unroll
        for (int j = 0; j < n; ++j)
            b[j] = *reinterpret_cast<const Words4*>(x + j * A::tile_bytes + half * A::half_bytes);
#pragma unroll
        for (int i = 0; i < n_rows; ++i) {
            LaneTile<f> tile;
            shared_tile(stage + (S::first_row() + i) * f.tile_bytes(), supers[i], tile);
            multiply_half(tile, half, table, b, sums[i]);
        }
    }
}

// Block x: 128 rows of x; block y: 128 rows of one of the weights.
template <uint32_t code, int n_stages>
__global__ void __launch_bounds__(256) gemm_kernel(MatmulArgs a) {
    constexpr TileFormat f = format_of(code);
    using S = GemmShape<f>;
    std::byte* const stages = shared_memory() + table_bytes(f);
    uint32_t table = 0;
    int64_t first = int64_t{block_y()} * S::row_blocks;
    const Segment& s = a.segment[segment_at(a, S::row_blocks, first)];
    const int64_t k = a.x.cols, rows = a.x.rows;
    const auto tiles = static_cast<int>(TileFormat::tiles(k)), run = static_cast<int>(run_tiles(tiles));
    const GemmPlace at{s.data + first * f.block_bytes(k), s.blocks - first, block_x() * S::columns};
    if constexpr (f.table) table = fill_table(a.table);

    constexpr int n_rows = S::warp_rows, n = S::warp_columns;
    const int mine = S::first_row();
    const std::byte* supers[n_rows];
    for (int i = 0; i < n_rows; ++i)
        supers[i] = at.weight + (mine + i < at.blocks ? mine + i : 0) * f.block_bytes(k) + f.supers_at(k);

    Sums<n> sums[n_rows] = {}, total[n_rows] = {};
    StageCopies<f> copies(at, k, rows, a.prepared);
    wait_for_previous();
    for (int i = 0; i < n_stages - 1; ++i) {
        if (i < tiles) copies.request(stages + i * S::stage_bytes);
        copy_commit();
    }
    const auto following = [](int stage) { return stage + 1 == n_stages ? 0 : stage + 1; };
    int current = 0, requested = n_stages - 1, until_sum = run;
    for (int t = 0; t < tiles; ++t) {
        copy_wait<n_stages - 2>();
        sync_block();
        if (t + n_stages - 1 < tiles) copies.request(stages + requested * S::stage_bytes);
        copy_commit();
        requested = following(requested);
        const std::byte* now[n_rows];
        for (int i = 0; i < n_rows; ++i) now[i] = supers[i] + t / 4 * 8 * f.lane_super();
        multiply_stage<f>(stages + current * S::stage_bytes, now, table, sums);
        current = following(current);
        if (--until_sum != 0 && t + 1 != tiles) continue;
        until_sum = run;
#pragma unroll
        for (int i = 0; i < n_rows; ++i)
#pragma unroll
            for (int j = 0; j < n; ++j)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    total[i].d[j][c] += sums[i].d[j][c];
                    sums[i].d[j][c] = 0;
                }
    }
    copy_wait<0>();
#pragma unroll
    for (int i = 0; i < n_rows; ++i)
        if (first + mine + i < s.blocks)
            store_fragments<f>(a, s, first + mine + i, at.column + S::first_column(), a.prepared.inverse,
                               total[i]);
}
