// The product for some rows of x, together more than an L1 cache holds. A block has one run of the weights'
// columns, so that its share of x stays in the cache, and each of its warps has row blocks of its own.
//
// With 32 rows of 4096 columns x is 256 KiB, seven times the 4-bit weights of a row block: a block that
// needed all of it would wait for the L2 cache. Here it needs 32 KiB, for all of its row blocks. The last
// warp to finish a row block adds the runs in their order: the bits are those of BlockProduct.
//
// More rows are taken 8 n at a time, by blocks that go through the same weights side by side: all but the
// first find them in the L2 cache. Where blocks of 128 x 128 are too few for the card, that fills it.

// Row blocks `first` .. of a launch, and what their runs leave for each 8 n rows of x: fragments of each run,
// and how many are done.
struct SplitRange {
    int64_t first, count;
    Words4* partial;
    int* done;  // zeros between launches
};

// Adds the runs of a row block and stores its results, for rows of x from `first` on; the whole warp.
template <TileFormat f, int n>
__device__ void finish_split(const MatmulArgs& a, const RowBlock& block, int first, const Words4* partial) {
    Sums<n> sums{};
#pragma unroll
    for (int i = 0; i < n; ++i) {
        Words4 part[runs];
#pragma unroll
        for (int r = 0; r < runs; ++r) part[r] = partial[(r * n + i) * 32 + lane()];
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int r = 0; r < runs; ++r) sums.d[i][j] += bits_float(part[r].w[j]);
    }
    store_fragments<f>(a, a.segment[block.which], block.index, first, a.prepared.inverse, sums);
}

// Block y: a run; z: 8 n rows of x; x and the warp: 16 rows of the weights, and those that are as many
// further as there are such warps.
template <uint32_t code, int n>
__global__ void __launch_bounds__(256, resident_blocks) split_kernel(MatmulArgs a, SplitRange range) {
    constexpr TileFormat f = format_of(code);
    const int64_t step = grid_x() * (block_threads() / 32), end = range.first + range.count;
    int64_t block = range.first + warp_index() * grid_x() + block_x();
    RowBlock now = row_block<f>(a, block < end ? block : end - 1);
    BlockProduct<f, n> product(now.data, a.x.cols, block_y());
    uint32_t table = 0;
    if constexpr (f.table) {
        table = fill_table(a.table);
        sync_block();
    }
    wait_for_previous();
    const int first = 8 * n * block_z();
    const WarpColumns<n> columns(
        a.prepared, [&](int c) -> int64_t { return first + c < a.x.rows ? first + c : a.x.rows - 1; });
    for (; block < end; block += step) {
        const bool more = block + step < end;
        const RowBlock next = row_block<f>(a, more ? block + step : block);
        Sums<n> sums{};
        product.multiply(table, columns, sums, more ? next.data : nullptr);
        const int64_t place = block_z() * range.count + block - range.first;
        Words4* const partial = range.partial + place * runs * n * 32;
        int* const done = range.done + place;
        if (leave_run(partial, block_y(), runs, done, sums)) {
            finish_split<f, n>(a, now, first, partial);
            if (lane() == 0) *done = 0;
        }
        now = next;
    }
}
