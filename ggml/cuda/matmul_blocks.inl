// Row blocks of weights of any formats as the work of one launch's thread blocks: what gemv and few rows
// share. A thread block takes some row blocks at a time, each by warps that have parts of its columns, and
// then those that lie a whole grid further on; sums meet in shared memory at the end, so no warp waits for
// another.

constexpr int block_warp_bits = 3, block_warps = 1 << block_warp_bits, row_block_threads = 32 * block_warps;

struct RowBlockArgs : ProductArgs {
    uint32_t code[max_matmul_weights] = {};  // formats
    int32_t begin[max_matmul_weights] = {};  // of each weight's row blocks among all
    int32_t blocks = 0;                      // of all weights
    int32_t slots = 0;                       // row blocks of a thread block
    int32_t height = 0;                      // of them at a time, side by side
    int32_t split_bits = 0;                  // of the number of warps that share a row block's columns
    bool paired = false;                     // the row blocks of both weights in turn
    bool table_used = false;
    int32_t unit = 0;  // columns of x that a warp takes at once, or a multiple of those of each weight

    __host__ __device__ int64_t table_bytes() const { return table_used ? int64_t{table_size} : 0; }
};

// Where a row block is: of which weight, and its number there; -1: there is none.
struct RowBlockPlace {
    int which, block;

    // Of the thread block's number `slot`.
    __device__ RowBlockPlace(const RowBlockArgs& a, int slot) : RowBlockPlace() {
        static_assert(max_matmul_weights == 3);
        const int turn = slot >> (block_warp_bits - a.split_bits), side = slot & (a.height - 1);
        const int at = (turn * static_cast<int>(grid_x()) + static_cast<int>(block_x())) * a.height + side;
        if (at >= a.blocks) return;
        if (a.paired)
            which = at % 2, block = at / 2;
        else
            which = (at >= a.begin[1]) + (at >= a.begin[2]), block = at - a.begin[which];
    }

  private:
    __device__ RowBlockPlace() : which(-1), block(0) {}
};

// What a result is added to: of row `row` of the weight and row `column` of x.
struct Added {
    float bias = 0, residual = 0;
    __device__ Added(const RowBlockArgs& a, const RowBlockPlace& at, int row, int64_t column) {
        const Segment& s = a.segment[at.which];
        if (s.bias) bias = s.bias.row(0)[row];
        if (a.residual) residual = a.residual.row(column)[s.first_col + row];
    }
    __device__ Added() {}
};

// The sum of what the warps that share a row block left, `step` floats apart.
__device__ inline float sum_of_splits(const RowBlockArgs& a, const float* of, int step) {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < block_warps; ++p) sum += p < 1 << a.split_bits ? of[step * p] : 0;
    return sum;
}

// A warp's share of a row block's columns: so many of the launch's units from `first` on.
struct WarpShare {
    int first, units, most;  // `most`: that any warp has

    __device__ explicit WarpShare(const RowBlockArgs& a) {
        const int splits = 1 << a.split_bits, split = warp_index() & (splits - 1);
        const int all = (a.x.cols + a.unit - 1) / a.unit;
        most = (all + splits - 1) >> a.split_bits;
        first = split * most;
        units = first >= all ? 0 : first + most <= all ? most : all - first;
    }
};

// The warp's row block of each turn: number `at` in the first, of which it is the thread block's `mine`th,
// and `step` further on in the next. up_to(n): of how many turns it lies before row block n.
struct WarpTurns {
    int mine, at, step;
    __device__ explicit WarpTurns(const RowBlockArgs& a)
        : mine(warp_index() >> a.split_bits),
          at(static_cast<int>(block_x()) * a.height + mine),
          step(static_cast<int>(grid_x()) * a.height) {}
    __device__ int up_to(int n) const {
        return n > at
                   ? static_cast<int>(static_cast<uint32_t>(n - at + step - 1) / static_cast<uint32_t>(step))
                   : 0;
    }
};

// Where the warp's row blocks begin, if all weights have one format; `slot`: of its first.
template <TileFormat f>
struct UniformBlocks {
    const RowBlockArgs& a;
    int slot;
    __device__ const std::byte* operator()(int i) const {
        const RowBlockPlace at(a, slot + i * a.height);
        return a.segment[at.which].data + at.block * f.block_bytes(a.x.cols);
    }
};

// And those of one weight, each `stride` bytes behind the last.
struct StridedBlocks {
    const std::byte* data;
    int64_t stride;
    __device__ const std::byte* operator()(int i) const { return data + i * stride; }
};

// A warp's way through its row blocks, of one format: `from(i)` is where number i begins. Its first units are
// on their way from the beginning on, before there is anything to multiply them by.
template <class Unit, class From>
class RowBlockStream {
  public:
    // `units` of each row block are the warp's, from `first` on; of k columns.
    __device__ RowBlockStream(const From& from, int count, int first, int units, int64_t k)
        : from_(from),
          n_tiles_(static_cast<int>(TileFormat::tiles(k))),
          count_(count),
          first_(first),
          units_(units) {
        if (left() == 0) return;
        reads_ = from(0);
#pragma unroll
        for (int i = 0; i < Unit::ahead; ++i)
            if (i < left()) load(ahead_[i]);
    }

    // For each row block: work.begin(its data), add(unit, number) and added(so many) for each unit, end(); or
    // none() where the warp has no units.
    template <class Work>
    __device__ void run(Work&& work) {
        if (units_ == 0)
            for (int i = 0; i < count_; ++i) work.none();
        int unit = 0, number = 0;
        for (int left = this->left(); left > 0;) {
#pragma unroll
            for (int i = 0; i < Unit::ahead; ++i) {
                if (left == 0) break;
                if (unit == 0) work.begin(from_(number));
                work.add(ahead_[i], unit);
                if (left > Unit::ahead) load(ahead_[i]);
                --left, ++unit;
                work.added(unit);
                if (unit != units_) continue;
                work.end();
                unit = 0, ++number;
            }
        }
    }

  private:
    __device__ int left() const { return count_ * units_; }
    __device__ void load(Unit& u) {
        u.load(reads_, n_tiles_, first_ + next_);
        if (++next_ == units_) next_ = 0, ++block_, reads_ = block_ < count_ ? from_(block_) : reads_;
    }

    const From from_;
    const int n_tiles_, count_, first_, units_;
    const std::byte* reads_ = nullptr;  // the row block of the unit to be read next
    int next_ = 0, block_ = 0;          // that unit, and the row block's number
    Unit ahead_[Unit::ahead];
};

// Calls run.operator()<format>(blocks, count, turn) for each weight that the warp has row blocks of among the
// thread block's turns from `from` up to `to`; `turn`: of the first one. Weights have one of the `codes`.
template <uint32_t... codes, class Run>
__device__ void for_each_weight(const RowBlockArgs& a, int from, int to, const Run& run) {
    const WarpTurns turns(a);
    const auto within = [&](int n) {
        const int all = turns.up_to(n);
        return all < from ? from : all > to ? to : all;
    };
#pragma unroll 1
    for (int which = 0; which < a.segments; ++which) {
        const Segment& s = a.segment[which];
        const int before = within(a.begin[which]);
        const int behind = within(a.begin[which] + static_cast<int>(s.blocks));
        if (before == behind) continue;
        const int block = turns.at + before * turns.step - a.begin[which];
        const auto multiply = [&]<uint32_t code>() {
            if (a.code[which] != code) return false;
            constexpr TileFormat f = format_of(code);
            const int64_t bytes = f.block_bytes(a.x.cols);
            run.template operator()<f>(StridedBlocks{s.data + block * bytes, turns.step * bytes},
                                       behind - before, before);
            return true;
        };
        (void)(multiply.template operator()<codes>() || ...);
    }
}

// How many warps share a row block's columns: so that none is without work.
int split_bits_of(int64_t units, bool paired) {
    int best = 0;
    int64_t busy = 0;  // thousandths of the warps' time
    for (int bits = paired ? block_warp_bits - 1 : block_warp_bits; bits >= 0 && busy <= 850; --bits) {
        const int64_t splits = int64_t{1} << bits, now = 1000 * units / (splits * ceil_div(units, splits));
        if (now > busy) best = bits, busy = now;
    }
    return best;
}

// Cuts the product into work for a grid, which it returns; 0: it cannot. `unit(f)`: columns that a warp takes
// at once, a power of two.
template <class Unit>
int64_t plan_row_blocks(const Exec& e, std::span<const Type> types, const Unit& unit, RowBlockArgs& a) {
    constexpr int32_t none = std::numeric_limits<int32_t>::max();
    int64_t blocks = 0;
    a.unit = 1;
    Type looked_up = Type::f32;
    for (size_t i = 0; i < max_matmul_weights; ++i) {
        a.begin[i] = i < types.size() ? static_cast<int32_t>(blocks) : none;
        if (i >= types.size()) continue;
        const TileFormat f = tiles_of(types[i]);
        if (f.table) {  // there is room for one table
            if (a.table_used && looked_up != types[i]) return 0;
            a.table_used = true, looked_up = types[i];
            a.table = table_of(looked_up);
        }
        a.unit = std::max(a.unit, unit(f));
        a.code[i] = format_code(f);
        blocks += a.segment[i].blocks;
        if (blocks > none / 16) return 0;
    }
    a.blocks = static_cast<int32_t>(blocks);
    a.split_bits = split_bits_of(ceil_div(int64_t{a.x.cols}, int64_t{a.unit}), a.paired);
    a.height = block_warps >> a.split_bits;
    const int64_t turns = ceil_div(blocks, int64_t{a.height});
    const int64_t grid = std::min<int64_t>(turns, int64_t{e.card->multiprocessors} * resident_blocks);
    if (grid == 0) return 0;
    a.slots = static_cast<int32_t>(ceil_div(turns, grid) * a.height);
    return grid;
}

// Formats that recipes give the weights of one product: int4's queries, keys and values.
constexpr uint32_t q4_k_code = format_code(tile_format<Q4_K>()), q5_k_code = format_code(tile_format<Q5_K>()),
                   q6_k_code = format_code(tile_format<Q6_K>());

// Calls launch.operator()<codes...>() with the formats of a kernel for these weights; false: there is none.
template <class Launch>
bool with_formats(std::span<const Type> types, const Launch& launch) {
    const TileFormat f = tiles_of(types[0]);
    if (std::ranges::all_of(types, [&](Type t) { return tiles_of(t) == f; }))
        return visit_tile_format(types[0],
                                 [&]<TileFormat g>() { launch.template operator()<format_code(g)>(); });
    if (!std::ranges::all_of(types, [](Type t) {
            const uint32_t code = format_code(tiles_of(t));
            return code == q4_k_code || code == q5_k_code || code == q6_k_code;
        }))
        return false;
    launch.template operator()<q4_k_code, q5_k_code, q6_k_code>();
    return true;
}
