// Row blocks of weights of any formats as the work of one launch's thread blocks: what gemv and few rows
// share. A thread block takes some row blocks at a time, each by warps that have parts of its columns, and
// then those that lie a whole grid further on; sums meet in shared memory at the end, so no warp waits for
// another.

// Columns that a warp takes at once of a weight of this format, and, as many or more, of x by itself.
constexpr int unit_bits(TileFormat f) { return f.real() ? 6 : f.group == 16 ? 7 : f.group == 32 ? 8 : 9; }
constexpr int launch_unit_bits(TileFormat f) { return f.real() ? 8 : unit_bits(f); }
template <uint32_t... codes>
constexpr int most_unit_bits = std::max({launch_unit_bits(format_of(codes))...});

constexpr int block_warp_bits = 3, block_warps = 1 << block_warp_bits, row_block_threads = 32 * block_warps;

struct RowBlockArgs : ProductArgs {
    UnitArgs ends_in;                        // of two weights, whose row blocks come in turn then
    uint32_t code[max_matmul_weights] = {};  // formats
    int64_t block_bytes[max_matmul_weights] = {};
    int32_t begin[max_matmul_weights] = {};  // of each weight's row blocks among all
    int32_t group[max_matmul_weights] = {};  // where formats differ: the first thread block of each weight's
    int32_t group_turns[max_matmul_weights] = {};  // of the first thread block of each, or of all
    bool grouped = false;
    int32_t blocks = 0;      // row blocks of all weights
    int32_t slots = 0;       // row blocks of a thread block
    int32_t height = 0;      // of them at a time, side by side
    int32_t split_bits = 0;  // of the number of warps that share a row block's columns
    int32_t unit_bits = 0;   // of the columns of a launch unit: enough for each weight
    // Where columns are no whole launch units: so many tiles the last one, unit `shifted` of the format,
    // begins early, to end with them. What it shares with the one before counts there: x is zero here.
    int32_t shift = 0, shifted = std::numeric_limits<int32_t>::max();
    bool table_used = false;
    uint32_t zero = 0;  // no constant to the compiler

    __host__ __device__ int64_t table_bytes() const { return table_used ? int64_t{table_size} : 0; }
    __host__ __device__ int units() const { return (x.cols + (1 << unit_bits) - 1) >> unit_bits; }
    // Columns of the share of launch unit u that count in the one before.
    __device__ int counted_before(int u) const { return u + 1 < units() ? 0 : 64 * shift; }
};

// The thread blocks that a thread block shares row blocks with: all others, or where weights differ in their
// formats those of its weight.
struct BlockGroup {
    int which = -1;   // the weight; -1: row blocks are those of all
    int index, size;  // of the thread block among them; how many there are
    int row_blocks, most_turns;
    // Of an expert: row blocks of its weight before its own, the row of x and the results, and the columns
    // there that are its.
    int before = 0;
    int row = 0, x_col = 0, out_col = 0;

    __device__ explicit BlockGroup(const RowBlockArgs& a)
        : index(static_cast<int>(block_x())),
          size(static_cast<int>(grid_x())),
          row_blocks(a.blocks),
          most_turns(a.group_turns[0]) {
        static_assert(max_matmul_weights == 3);
        if (!a.grouped) return;
        which = (index >= a.group[1]) + (index >= a.group[2]);
        const int end = which + 1 < a.segments ? a.group[which + 1] : size;
        size = end - a.group[which], index -= a.group[which];
        row_blocks = static_cast<int>(a.segment[which].blocks);
        most_turns = a.group_turns[which];
    }
    __device__ int step(const RowBlockArgs& a) const { return size * a.height; }  // from turn to turn
    // How many of a thread block's turns have a row block for place `side` of a.height: all, or not the last.
    __device__ int turns(const RowBlockArgs& a, int side) const {
        const int last = index * a.height + side + (most_turns - 1) * step(a);
        return last < row_blocks ? most_turns : most_turns - 1;
    }
};

// Where a row block is: of which weight, and its number there; -1: there is none.
struct RowBlockPlace {
    int which = -1, block = 0;
    int in_weight = 0;  // its number among those of all experts
    int col = 0;        // of its first result, among those of the weight
    int at;             // among the row blocks of the group

    // Of the thread block's number `slot`.
    __device__ RowBlockPlace(const RowBlockArgs& a, const BlockGroup& group, int slot) {
        const int turn = slot >> (block_warp_bits - a.split_bits), side = slot & (a.height - 1);
        at = (turn * group.size + group.index) * a.height + side;
        if (at >= group.row_blocks) return;
        if (group.which >= 0)
            which = group.which, block = at;
        else if (a.ends_in.on)
            which = at % 2, block = at / 2;
        else
            which = (at >= a.begin[1]) + (at >= a.begin[2]), block = at - a.begin[which];
        in_weight = group.before + block, col = group.out_col + 16 * block;
    }
};

// What a row of a weight is times, and what is added to it.
struct RowEnd {
    float factor = 0, bias = 0;
    __device__ RowEnd() {}
    __device__ static float weight(const void* p) { return bits_float(load4(p)); }
    __device__ RowEnd(const RowBlockArgs& a, int which, int block, int r) {
        const Segment& s = a.segment[which];
        factor =
            weight(s.data + (block + 1) * a.block_bytes[which] + (r - 16) * static_cast<int>(sizeof(float)));
        if (s.bias) bias = weight(s.bias.row(0) + 16 * block + r);
    }
};

// What makes a result of a sum: in row r of a row block and row `column` of x.
struct ResultEnd {
    RowEnd row, beside;  // of the other weight, if they end in a unit
    float residual = 0;

    __device__ ResultEnd() {}
    __device__ ResultEnd(const RowBlockArgs& a, const RowBlockPlace& at, int r, int64_t column) {
        if (const float* const of = take_constants(a, at, r, column)) residual = *of;
    }
    // All but the residual, of what others may still be writing: returns where that is, null: there is none.
    __device__ const float* take_constants(const RowBlockArgs& a, const RowBlockPlace& at, int r,
                                           int64_t column) {
        row = RowEnd(a, at.which, at.in_weight, r);
        if (a.ends_in.on) beside = RowEnd(a, 1, at.in_weight, r);
        return a.residual ? a.residual.row(column) + (a.segment[at.which].first_col + at.col + r) : nullptr;
    }

    // total(slot): the product's sum.
    template <class Total>
    __device__ void store(const RowBlockArgs& a, const RowBlockPlace& at, int slot, int r, int64_t column,
                          const Total& total) const {
        const float value = total(slot) * row.factor + row.bias;
        if (!a.ends_in.on)
            a.out.row(column)[a.segment[at.which].first_col + at.col + r] = value + residual;
        else if (at.which == 0)
            a.ends_in.out.row(column)[at.col + r] =
                gated(a.ends_in.params, value, total(slot + 1) * beside.factor + beside.bias);
    }
};

// The sum of what the warps that share a row block left, `step` floats apart.
__device__ inline float sum_of_splits(const RowBlockArgs& a, const float* of, int step) {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < block_warps; ++p) sum += p < 1 << a.split_bits ? of[step * p] : 0;
    return sum;
}

// The lane's number, from a shuffle: the compiler knows nothing about it then and keeps it. Otherwise it, and
// what it is made of, is computed anew wherever it is used.
template <class T>
__device__ T kept(T v) {
    return shuffle(v, lane());
}

// A warp's share of a row's columns: so many of the launch's units from `first` on. Warps that multiply share
// them as the row blocks are split; those that make a row ready, all of a block.
struct WarpShare {
    int first, units;

    // One of 2^bits, the block's first warp having number `before`.
    __device__ WarpShare(const RowBlockArgs& a, int bits, int before = 0) {
        const int splits = 1 << bits, split = (before + warp_index()) & (splits - 1);
        const int all = a.units();
        const int most = (all + splits - 1) >> bits;
        first = kept(split * most);
        units = kept(first >= all ? 0 : first + most <= all ? most : all - first);
    }
};

// Where the warp's row blocks begin, one after the other; `slot`: of its first.
class WarpBlocks {
  public:
    __device__ WarpBlocks(const RowBlockArgs& a, const BlockGroup& group, int slot)
        : a_(a), group_(group), step_(group.step(a)), slot_(slot) {
        find();
    }
    __device__ const RowBlockArgs& args() const { return a_; }
    __device__ const std::byte* data() const { return data_; }
    __device__ void next() {
        slot_ += a_.height, at_ += step_;
        if (at_ < end_)
            data_ += stride_;
        else
            find();
    }

  private:
    // Those of a weight are as far apart as the turns are.
    __device__ void find() {
        const RowBlockPlace place(a_, group_, slot_);
        if (place.which < 0) return;
        const int64_t bytes = a_.block_bytes[place.which];
        data_ = a_.segment[place.which].data + place.in_weight * bytes;
        stride_ = (a_.ends_in.on ? step_ / 2 : step_) * bytes;
        at_ = place.at;
        const bool only = group_.which >= 0 || a_.ends_in.on || place.which == 2;
        end_ = only ? group_.row_blocks : a_.begin[place.which + 1];
    }

    const RowBlockArgs& a_;
    const BlockGroup& group_;
    const int step_;
    int slot_, at_ = 0, end_ = 0;  // where the weight's end
    const std::byte* data_ = nullptr;
    int64_t stride_ = 0;
};

// Where the lane's parts of a unit are, from its first tile's codes on: upper bits, and scales, of the tile
// `first` tiles behind it.
template <TileFormat f>
struct LaneParts {
    int codes, extra, scales, super;
    __device__ explicit LaneParts(int first)
        : codes(kept(lane() * 16)),
          extra(f.extra ? kept(f.extra_at() + lane() * (4 * f.extra - 16)) : 0),
          scales(kept(first * f.tile_bytes() + f.scales_at() + lane() / 4 * f.lane_scales() - lane() * 16)),
          super(lane() / 4 * f.lane_super()) {}
};

// The lane's place in a unit of a row block: 2^unit_bits(f) columns.
template <TileFormat f>
struct UnitPlace {
    static constexpr int tiles = (1 << unit_bits(f)) / 64;
    const std::byte *codes, *supers;  // of the first tile; factors of the row block's first 256 columns
    int unit;

    __device__ UnitPlace(const std::byte* block, int at, int n_tiles, const LaneParts<f>& lane)
        : codes(block + (int64_t{at} * (tiles * f.tile_bytes()) + lane.codes)),
          supers(block + (int64_t{n_tiles} * f.tile_bytes() + lane.super)),
          unit(at) {}
    __device__ UnitPlace() {}
    __device__ void next() { codes += tiles * f.tile_bytes(), ++unit; }
    // Codes alone: columns of a format with factors are whole units.
    static constexpr bool shifts = !f.factor();
    __device__ void back(int n_tiles) { codes -= n_tiles * f.tile_bytes(); }
};

// A warp's way through its row blocks, of one format. Its first units are on their way from the beginning on,
// before there is anything to multiply them by.
template <class Unit, int ahead = Unit::ahead>
class RowBlockStream {
  public:
    // `units` of each of `count` row blocks are the warp's, from `first` on; of k columns.
    __device__ RowBlockStream(const WarpBlocks& blocks, int count, int first, int units, int k)
        : blocks_(blocks),
          parts_(Unit::first_scales()),
          n_tiles_((k + 63) / 64),
          count_(count),
          first_(first),
          units_(units) {
        if (left() == 0) return;
        begin_block();
#pragma unroll
        for (int i = 0; i < ahead; ++i)
            if (i < left()) ahead_[i].load(place_, parts_), advance();
    }

    // For each row block: work.add(unit, number, refill) for each unit, which calls refill(unit, part) for
    // each part of it once it is done with that; then end(); or none() where the warp has no units.
    template <class Work>
    __device__ void run(Work&& work) {
        if (units_ == 0)
            for (int i = 0; i < count_; ++i) work.none();
        int unit = 0;
        for (int left = this->left(); left > 0;) {
#pragma unroll
            for (int i = 0; i < ahead; ++i) {
                if (left == 0) break;
                const Refill refill{left > ahead, place_, parts_};
                work.add(ahead_[i], unit, refill);
                if (refill.on) advance();
                --left;
                if (++unit != units_) continue;
                work.end();
                unit = 0;
            }
        }
    }

  private:
    using Place = typename Unit::Place;
    using Parts = typename Unit::Parts;

    struct Refill {
        const bool on;
        const Place& place;
        const Parts& parts;
        __device__ void operator()(Unit& u, int part) const {
            if (on) u.load_part(place, parts, part);
        }
    };

    __device__ int left() const { return count_ * units_; }
    __device__ void advance() {
        place_.next();
        if (++next_ < units_) return shift();
        next_ = 0;
        blocks_.next();
        begin_block();
    }
    __device__ void begin_block() {
        place_ = Place(blocks_.data(), first_, n_tiles_, parts_);
        shift();
    }
    __device__ void shift() {
        if constexpr (Place::shifts)
            if (first_ + next_ == blocks_.args().shifted) place_.back(blocks_.args().shift);
    }

    WarpBlocks blocks_;
    const Parts parts_;
    const int n_tiles_, count_, first_, units_;
    Place place_;   // of the unit to be read next
    int next_ = 0;  // its number
    Unit ahead_[ahead];
};

// Calls fn.operator()<format>() for the thread block's format, one of the `codes`.
template <uint32_t... codes, class Fn>
__device__ void with_group_format(const RowBlockArgs& a, const BlockGroup& group, const Fn& fn) {
    if constexpr (sizeof...(codes) == 1) {
        fn.template operator()<format_of((codes, ...))>();
    } else {
        const uint32_t code = a.code[group.which < 0 ? 0 : group.which];
        (void)((code == codes ? (fn.template operator()<format_of(codes)>(), true) : false) || ...);
    }
}

// How many warps share a row block's columns: so that none is without work. Of a pair both are in a block.
int split_bits_of(int64_t units, bool paired) {
    int best = 0;
    int64_t busy = 0;  // thousandths of the warps' time
    for (int bits = paired ? block_warp_bits - 1 : block_warp_bits; bits >= 0 && busy <= 850; --bits) {
        const int64_t splits = int64_t{1} << bits, now = 1000 * units / (splits * ceil_div(units, splits));
        if (now > busy) best = bits, busy = now;
    }
    return best;
}

// Deals `grid` thread blocks out to the weights' groups, so that the one with the most to read is soon done.
// Returns the most turns of a group.
int64_t deal_groups(int64_t grid, RowBlockArgs& a) {
    const auto n = static_cast<size_t>(a.segments);
    std::array<int64_t, max_matmul_weights> turns{}, size{};
    for (size_t i = 0; i < n; ++i) turns[i] = ceil_div(a.segment[i].blocks, int64_t{a.height}), size[i] = 1;
    const auto each = [&](size_t i) { return ceil_div(turns[i], size[i]); };
    for (int64_t left = grid - a.segments; left > 0; --left) {
        size_t longest = 0;
        for (size_t i = 1; i < n; ++i)
            if (each(i) * a.block_bytes[i] > each(longest) * a.block_bytes[longest]) longest = i;
        ++size[longest];
    }
    int64_t first = 0, most = 0;
    for (size_t i = 0; i < max_matmul_weights; ++i) {
        a.group[i] = i < n ? static_cast<int32_t>(first) : std::numeric_limits<int32_t>::max();
        if (i >= n) continue;
        a.group_turns[i] = static_cast<int32_t>(each(i));
        first += size[i], most = std::max(most, each(i));
    }
    a.grouped = true;
    return most;
}

// Cuts the product into work for a grid of blocks, which it returns; 0: it cannot. The card's blocks are
// shared with so many products of the kind.
int64_t plan_row_blocks(const Exec& e, std::span<const Type> types, RowBlockArgs& a, int64_t products = 1) {
    constexpr int32_t none = std::numeric_limits<int32_t>::max();
    int64_t blocks = 0;
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
        a.unit_bits = std::max(a.unit_bits, int32_t{launch_unit_bits(f)});
        a.code[i] = format_code(f);
        a.block_bytes[i] = f.block_bytes(a.x.cols);
        blocks += a.segment[i].blocks;
        if (blocks > none / 16) return 0;
    }
    a.blocks = static_cast<int32_t>(blocks);
    a.shift = static_cast<int32_t>((int64_t{a.units()} << a.unit_bits) - a.x.cols) / 64;
    if (a.shift > 0) a.shifted = (a.units() - 1) << (a.unit_bits - unit_bits(tiles_of(types[0])));
    a.split_bits = split_bits_of(a.units(), a.ends_in.on);
    a.height = block_warps >> a.split_bits;
    const int64_t turns = ceil_div(blocks, int64_t{a.height});
    constexpr int64_t most_turns = 16;  // where there are many small ones: their sums need shared memory
    int64_t most = int64_t{e.card->multiprocessors} * resident_blocks;
    if (products > 1) most = std::max(ceil_div(most, products), ceil_div(turns, most_turns));
    const int64_t grid = std::min(turns, most);
    const bool alike = std::all_of(a.code, a.code + types.size(), [&](uint32_t c) { return c == a.code[0]; });
    if (!alike && grid < a.segments) return 0;  // each has blocks of its own
    a.group_turns[0] = static_cast<int32_t>(ceil_div(turns, grid));
    a.slots = static_cast<int32_t>((alike ? a.group_turns[0] : deal_groups(grid, a)) * a.height);
    return grid;
}

// Formats that recipes give the weights of one product: int4's queries, keys and values.
constexpr uint32_t q4_k_code = format_code(tile_format<Q4_K>()), q5_k_code = format_code(tile_format<Q5_K>()),
                   q6_k_code = format_code(tile_format<Q6_K>());

inline bool of_k_quants(std::span<const Type> types) {
    return std::ranges::all_of(types, [](Type t) {
        const uint32_t code = format_code(tiles_of(t));
        return code == q4_k_code || code == q5_k_code || code == q6_k_code;
    });
}

// Calls launch.operator()<codes...>() with the formats of a kernel for these weights; false: there is none.
template <class Launch>
bool with_formats(std::span<const Type> types, const Launch& launch) {
    const TileFormat f = tiles_of(types[0]);
    if (std::ranges::all_of(types, [&](Type t) { return tiles_of(t) == f; }))
        return visit_tile_format(types[0],
                                 [&]<TileFormat g>() { launch.template operator()<format_code(g)>(); });
    if (!of_k_quants(types)) return false;
    launch.template operator()<q4_k_code, q5_k_code, q6_k_code>();
    return true;
}
