// The product of two to eight rows: how a thread block makes a row of x ready, and multiplies by its row
// blocks; and how a launch is planned for it.

#include "ggml/cuda/matmul_few.inl"

struct FewArgs : RowBlockArgs {
    FewRows prepared;
    int32_t turns = 0;     // after which sums become results
    int32_t row_bits = 0;  // of the number of blocks that make a row ready

    // Launch units of a warp's share of a row that is made ready.
    __host__ __device__ int row_units() const {
        const int bits = block_warp_bits + row_bits;
        return (units() + (1 << bits) - 1) >> bits;
    }
};

// Of shared memory for sums, so that two thread blocks and the cached rows of x have room beside each other.
constexpr size_t few_sums_bytes = 48 << 10;
constexpr int most_row_bits = 3;  // blocks for a row, so that a warp has a unit or two of a long one
constexpr int squares_bytes = block_warps * sizeof(float);
// What a warp leaves of a row block: its fragment of sums, 16 bytes per lane.
constexpr int fragment_floats = 16 * 8;
constexpr size_t few_turn_bytes = block_warps * fragment_floats * sizeof(float);

// Columns that there is room for: whole units of any format.
__host__ __device__ inline int64_t few_columns(int64_t cols) { return (cols + 511) / 512 * 512; }

// A row of x on its way to where FewRows has it. The warp keeps its share, too.
struct FewRow {
    SharedRow own;
    Activations<8>::Column column;
    float* inverse;
    int first, fours;  // the share's first launch unit; of four columns in one
    __device__ void put(int unit, int four, const Words2& w) const {
        own.put(unit, four, w);
        column.put((first + unit) * fours + four, w);
    }
    __device__ void scaled_by(int unit, float inv) const { inverse[(first + unit) * 8] = inv; }
};

// What groups of 2^bits columns of a warp's share sum up to, to a column of FewRows::sums, if it is wanted.
template <int bits>
__device__ void sum_groups(const RowBlockArgs& a, const WarpShare& share, const SharedRow& x, int64_t row,
                           float* to) {
    if (!to) return;
    const int in_launch_unit = a.unit_bits - (bits + 3);
    to += (share.first << in_launch_unit) * 64 + row;
    for (int unit = 0; unit < share.units << in_launch_unit; ++unit, to += 64) {
        float of[2];
        UnitColumns<1 << bits>(x.values, unit).sum(of);
        if (lane() < 4)
            for (int side = 0; side < 2; ++side) to[(lane() * 2 + side) * 8] = of[side];
    }
}

// Part `part` of a row, the whole block.
__device__ inline void prepare_few_row(const FewArgs& a, int64_t row, int part) {
    auto* const squares = reinterpret_cast<float*>(shared_memory());
    const WarpShare share(a, block_warp_bits + a.row_bits, part * block_warps);
    const Activations<8> to{a.prepared.values, nullptr, TileFormat::tiles(few_columns(a.x.cols))};
    const int unit_bytes = 2 << a.unit_bits;
    const SharedRow own{shared_memory() + squares_bytes + warp_index() * a.row_units() * unit_bytes, nullptr,
                        unit_bytes};
    const FewRow to_row{own, to.column(row), a.prepared.inverse + row, share.first, 1 << (a.unit_bits - 2)};
    if (a.unit_bits == 7)
        prepare_units<7>(a, share, a.x.row(row), to_row, squares);
    else if (a.unit_bits == 8)
        prepare_units<8>(a, share, a.x.row(row), to_row, squares);
    else
        prepare_units<9>(a, share, a.x.row(row), to_row, squares);
    sync_warp();
    sum_groups<4>(a, share, own, row, a.prepared.sums[0]);
    sum_groups<5>(a, share, own, row, a.prepared.sums[1]);
    sum_groups<6>(a, share, own, row, a.prepared.sums[2]);
    sync_block();
    const float factor = units_factor(a, squares);
    if (part == 0 && thread_index() == 0) a.prepared.factor[row] = factor;
    keep_normed(a, row, factor);
}

// The thread block's part of a product by weights of any of the formats `codes`.
template <uint32_t... codes>
__device__ void few_product(const FewArgs& a) {
    constexpr int unit_bits = most_unit_bits<codes...>;
    auto* const sums = reinterpret_cast<float*>(shared_memory() + a.table_bytes());  // [slot][split][lane][4]

    uint32_t table = 0;
    if (a.table_used) table = fill_table(a.table);
    const auto rows = static_cast<int>(a.x.rows);
    const BlockGroup group(a);
    const WarpShare share(a, a.split_bits);
    const int column = lane() / 4 < rows ? lane() / 4 : rows - 1;  // nobody asks for one that is not there
    const int x = kept((share.first << unit_bits) / 64 * Activations<8>::tile_bytes +
                       column * (Activations<8>::value_bytes / 2) + lane() % 4 * 16);
    const int of_lane = lane() % 4 * 8, inverse = kept(share.first * 32 + of_lane);
    // Of the turns from `first` on, whose sums are there.
    const auto store = [&](int first) {
        const int slots = a.turns * a.height, before = first * a.height;
        for (int i = thread_index(); i < slots * 16 * rows; i += row_block_threads) {
            const int r = i % 16, c = i / 16 % rows, slot = i / 16 / rows;
            const RowBlockPlace place(a, group, before + slot);
            if (place.which < 0 || 16 * place.block + r >= a.segment[place.which].rows) continue;
            const float factor = a.prepared.factor[c];
            ResultEnd(a, place, r, c).store(a, place, slot, r, c, [&](int s) {
                const float* const of = sums + (s << a.split_bits) * fragment_floats +
                                        (r % 8 * 4 + c / 2) * 4 + r / 8 * 2 + c % 2;
                return sum_of_splits(a, of, fragment_floats) * factor;
            });
        }
    };
    with_group_format<codes...>(a, group, [&]<TileFormat f>() {
        constexpr int bits = unit_bits - cuda::unit_bits(f);
        const int mine = warp_index() >> a.split_bits;
        const int all_turns = a.slots / a.height, own = group.turns(a, mine);
#pragma unroll 1
        for (int first = 0; first < all_turns; first += a.turns) {
            const int left = own - first, count = left < a.turns ? left : a.turns;
            RowBlockStream<FewUnit<f>> stream(WarpBlocks(a, group, mine + first * a.height),
                                              count < 0 ? 0 : count, share.first << bits, share.units << bits,
                                              a.x.cols);
            if (first == 0) wait_for_previous();
            if (first > 0 || a.table_used) sync_block();
            stream.run(FewWork<f>{a.prepared, x, inverse, (share.first << bits) * 256 + of_lane, table,
                                  ByteFronts<f>(a.zero), reinterpret_cast<Words4*>(sums) + warp_index() * 32,
                                  block_warps * 32, bits});
            sync_block();
            store(first);
        }
    });
}

size_t few_values_bytes(int64_t cols) {
    return static_cast<size_t>(TileFormat::tiles(few_columns(cols))) * Activations<8>::tile_bytes;
}

// Cuts the product into work for a grid of blocks, which it returns; 0: it cannot. The prepared rows take
// `memory`, of few_prepared_bytes().
int64_t plan_few(const Exec& e, const ProductArgs& product, std::span<const Type> types,
                 std::span<std::byte> memory, const UnitArgs& ends_in, FewArgs& a) {
    const int64_t cols = few_columns(product.x.cols);
    if (!takes_units(product, types) || memory.size() < few_prepared_bytes(cols)) return 0;
    auto* const factor = reinterpret_cast<float*>(memory.data() + few_values_bytes(cols));
    a = {{{product}, ends_in}, {memory.data(), factor + 8, factor, {}}};
    float* next = a.prepared.inverse + cols / warp_columns * 8;
    for (const int group : {16, 32, 64}) {
        const bool wanted = std::ranges::any_of(types, [&](Type t) {
            const TileFormat f = tiles_of(t);
            return f.group == group && sums_x(f);
        });
        if (!wanted) continue;
        a.prepared.sums[FewRows::of_group(group)] = next;
        next += cols / group * 8;
    }
    const int64_t grid = plan_row_blocks(e, types, a);
    if (grid == 0) return 0;
    const auto table = static_cast<size_t>(a.table_bytes());
    const size_t room = std::min(few_sums_bytes, e.card->shared_per_block - table);
    // A norm's squares are added up by one block, in the order that one row has.
    if (!a.norm.on)
        while (a.row_bits < most_row_bits && a.row_units() > 1) ++a.row_bits;
    a.turns = static_cast<int32_t>(
        std::min<size_t>(static_cast<size_t>(a.slots / a.height), room / few_turn_bytes));
    return grid;
}

// What a launch asks of a card: for the product, and to make a row ready.
size_t few_shared_bytes(const FewArgs& a) {
    return static_cast<size_t>(a.table_bytes()) + static_cast<size_t>(a.turns) * few_turn_bytes;
}
size_t few_row_shared_bytes(const FewArgs& a) {
    return squares_bytes + (static_cast<size_t>(a.row_units() * block_warps) << a.unit_bits) * 2;
}
