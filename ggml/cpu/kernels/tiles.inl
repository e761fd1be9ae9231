// Matmul on tiles (AMX): weights in bf16 as they lie, and codes against many rows, decoded into a panel.
// By the number of rows of a product codes meet activations in int8 or in bf16: see few_rows.

// What all rows are multiplied by before the next: a part of K of a panel, which is tile_columns columns of a
// block of tiled_columns.
struct TilePart {
    const std::byte* group;  // of the packed weights
    int64_t groups;          // one or two
    int64_t block, panel;    // numbers
    int64_t k0, k;
    int64_t number;  // of those before it
};
// Where its weights lie: units of 32 bits of every column in turn, the second group `vector` bytes behind.
struct TiledWeights {
    const std::byte* w;
    int64_t vector;
};

// Kinds of weights make a part ready in units: a block of 32 columns of K of a group, in eight quads. Quads
// are done one by one between the products of the part before, which leave vectors and loads idle.

// Packed bf16 is what tiles want, so its lines are asked for. Few rows read it as one stream without that.
struct Bf16Tiles {
    using Unit = const std::byte*;
    static constexpr int64_t column_bytes = lanes * 2, unit_bytes = bf16_step * column_bytes;  // of a group
    const MatmulBlock& b;
    int64_t group_bytes;

    TiledWeights tiles(const TilePart& p) const { return {p.group + p.k0 * column_bytes, group_bytes}; }
    bool few() const { return b.m <= few_rows; }
    int64_t units(const TilePart& p) const { return few() ? 0 : p.groups * (p.k / bf16_step); }
    Unit unit(const TilePart& p, int64_t i) const {
        const int64_t each = p.k / bf16_step;
        return p.group + p.k0 * column_bytes +
               (i < each ? i * unit_bytes : (i - each) * unit_bytes + group_bytes);
    }
    template <int quad>
    [[gnu::always_inline]] void prepare(const Unit& u) const {
        prefetch_lines<128>(u + quad * 128);
    }
};

template <class Fmt>
struct CodeTiles {
    struct Unit {
        CodeUnit<Fmt> codes;
        std::byte* out;
    };
    const MatmulBlock& b;
    int64_t group_bytes;
    std::byte* panels;  // two

    static bool few() { return false; }
    TiledWeights tiles(const TilePart& p) const { return {panel(p), panel_half}; }
    int64_t units(const TilePart& p) const { return p.groups * (p.k / int8_block); }
    [[gnu::always_inline]] Unit unit(const TilePart& p, int64_t i) const {
        const int64_t each = p.k / int8_block, v = i < each ? 0 : 1, at = i - v * each;
        return {{p.group + v * group_bytes, b, p.k0 / int8_block + at},
                panel(p) + v * panel_half + at * register_bytes};
    }
    template <int quad>
    [[gnu::always_inline]] void prepare(const Unit& u) const {
        u.codes.template write<quad>(u.out);
    }

  private:
    static constexpr int64_t panel_half = tiled_panel_bytes / 2;
    std::byte* panel(const TilePart& p) const { return panels + p.number % 2 * tiled_panel_bytes; }
};

template <int quad = 0, class Weights, class Unit>
[[gnu::always_inline]] inline void prepare_quads(const Weights& weights, const Unit& unit) {
    weights.template prepare<quad>(unit);
    if constexpr (quad < 7) prepare_quads<quad + 1>(weights, unit);
}
template <class Weights>
[[gnu::noinline]] inline void prepare_units(const Weights& weights, const TilePart& p, int64_t first,
                                            int64_t end) {
    for (; first < end; ++first) prepare_quads(weights, weights.unit(p, first));
}

// What vectors do during the products of a part: they make the next one's weights ready, and results of the
// sums before. As little as possible in each step: the tiles of the next wait behind it.
template <class Weights, class Results>
struct TileWork {
    const Weights& weights;
    TileResults<Results>& results;
    TilePart next;
    int64_t units, total_units;  // for 32 rows of the part, and for all
    int64_t rows;                // for 32 rows
    int64_t prepared = 0;

    // During the products of 32 rows: one unit and one row are cut into steps.
    struct Share {
        typename Weights::Unit unit;
        typename Results::Row row;
        bool has_unit;
    };
    Share begin() {
        const int64_t more = units < total_units - prepared ? units : total_units - prepared;
        // Where none is left it is the first again, for a unit reads its scales at once.
        Share share{weights.unit(next, more > 0 ? prepared : 0), {}, more > 0};
        if (more > 1) prepare_units(weights, next, prepared + 1, prepared + more);
        prepared += more;
        if (rows > 1) results.rows(rows - 1);
        if (rows > 0) share.row = results.next();
        return share;
    }
    // Steps [i, end) of eight.
    template <int i, int end>
    [[gnu::always_inline]] void steps(const Share& share) const {
        if (share.has_unit) weights.template prepare<i>(share.unit);
        if (share.row.out) share.row.template step<i>();
        if constexpr (i + 1 < end) steps<i + 1, end>(share);
    }
    void end() { prepare_units(weights, next, prepared, total_units); }
};

// Of more than kept_rows_bytes, rows of a part of K are asked for while the part before is multiplied, a
// share by each of a block's panels.

// 32 rows at a time against n steps of K of tile_columns columns, all of them whole. A sum is stored, and
// that of the next rows takes its register, as soon as its last product is on its way: the others go on
// meanwhile.
template <int n>
struct WholeTiles {
    static constexpr int64_t step_bytes = register_bytes, sums_bytes = TileMultiplier::sums * 4;
    static constexpr int64_t share_bytes = 8 * 2 * step_bytes / (tiled_columns / tile_columns);
    const std::byte* x;  // of the first 16 rows
    int64_t x_half;      // to the next 16
    const std::byte* w;  // of the first group
    int64_t w_half;      // to the second
    std::byte* c;        // sums of the first rows
    int64_t c_step;      // to those of the next
    bool from_zero;
    const std::byte* ask;  // the share of what the first rows need for the next part, or null

    template <class Work>
    void multiply(int64_t blocks, Work& work) {
        begin<0>(c), begin<1>(c), begin<2>(c), begin<3>(c);
        for (; blocks > 0; --blocks, x += 2 * x_half, c += c_step) {
            steps(blocks > 1, work, work.begin());
            if (ask) ask += 2 * x_half;
        }
    }

  private:
    template <int sum>
    [[gnu::always_inline]] void begin(const std::byte* from) const {
        if (from_zero)
            tile_zero<sum>();
        else
            tile_load<sum>(from + sum * sums_bytes, 64);
    }
    template <int sum, int i>
    [[gnu::always_inline]] void product(bool more) const {
        tile_dot_bf16<sum, 4 + sum / 2, 6 + sum % 2>();
        if constexpr (i + 1 == n) {
            tile_store<sum>(c + sum * sums_bytes, 64);
            if (more) begin<sum>(c + c_step);
        }
    }
    template <int i = 0, class Work, class Share>
    [[gnu::always_inline]] void steps(bool more, const Work& work, const Share& share) const {
        tile_load<4>(x + i * step_bytes, 64);
        tile_load<6>(w + i * step_bytes, 64);
        product<0, i>(more);
        tile_load<7>(w + w_half + i * step_bytes, 64);
        product<1, i>(more);
        tile_load<5>(x + x_half + i * step_bytes, 64);
        product<2, i>(more);
        product<3, i>(more);
        work.template steps<8 / n * i, 8 / n*(i + 1)>(share);
        if (ask) prefetch_lines<share_bytes / n, second_level>(ask + i * (share_bytes / n));
        if constexpr (i + 1 < n) steps<i + 1>(more, work, share);
    }
};
static_assert(tiled_depth == 8 * bf16_step);

// The sums of n columns of a block of a product. Of Results::parts matrices they take as many columns each,
// in every tiled_columns of sums one matrix after the other. In the results they are columns [n0, n0 + n).
template <class Weights, class Results>
class TiledProduct {
  public:
    using Groups = TiledGroups<Results::parts>;

    TiledProduct(const MatmulBlock& b, const Weights& weights, const Results& kind, const Groups& groups,
                 int64_t n0, int64_t n)
        : b_(b),
          weights_(weights),
          groups_(groups),
          n0_(n0),
          n_(n),
          few_(Results::parts == 1 && weights.few()),
          k_(b.xb_stride),
          depth_(few_ ? k_ : tiled_depth),
          slices_((k_ + depth_ - 1) / depth_),
          width_(few_ ? tile_columns : tiled_columns),
          panels_(width_ / tile_columns),
          row_blocks_(b.m / rows),
          results_(kind, b.m) {}

    void run() {
        auto* const sums = reinterpret_cast<float*>(b_.scratch);
        const int64_t whole = n_ / width_, rest = (n_ - whole * width_ + tile_columns - 1) / tile_columns;
        const int64_t parts = (whole * panels_ + rest) * slices_;
        TilePart next = part_at(0);
        prepare_units(weights_, next, 0, weights_.units(next));
        for (int64_t number = 0; number < parts; ++number) {
            const TilePart part = next;
            int64_t units = 0;
            if (number + 1 < parts) {
                next = part_at(number + 1);
                units = weights_.units(next);
            }
            TileWork<Weights, Results> work{weights_, results_,
                                            next,     shared(units, row_blocks_),
                                            units,    shared(b_.m, row_blocks_ * panels_ * slices_)};
            float* const sums_of_block = sums + part.block % 2 * (tiled_sums_bytes / 4);
            multiply(part, sums_of_block + part.panel * tile_row_panel, work);
            work.end();
            if (number + 1 < parts && next.block == part.block) continue;
            results_.finish();
            const int64_t column = part.block * width_, left = n_ - column;
            results_.begin(sums_of_block, panels_, n0_ + column / Results::parts,
                           (left < width_ ? left : width_) / Results::parts);
        }
        results_.finish();
    }

  private:
    static constexpr int64_t rows = 2 * TileMultiplier::rows;

    static int64_t shared(int64_t units, int64_t among) {
        return among > 0 ? (units + among - 1) / among : 0;
    }

    TilePart part_at(int64_t number) const {
        const int64_t block = number / (slices_ * panels_), left = n_ - block * width_;
        const int64_t here = left < width_ ? (left + tile_columns - 1) / tile_columns : panels_;
        const int64_t in_block = number - block * slices_ * panels_;
        const int64_t panel = in_block % here, of_one = here / Results::parts;
        const int64_t k0 = in_block / here * depth_;
        const int64_t in_matrix = block * (width_ / Results::parts) + panel % of_one * tile_columns;
        return {groups_.of[panel / of_one] + in_matrix / lanes * weights_.group_bytes,
                left - panel * tile_columns > lanes ? 2 : 1,
                block,
                panel,
                k0,
                k_ - k0 < depth_ ? k_ - k0 : depth_,
                number};
    }

    template <class Work>
    void multiply(const TilePart& part, float* sums, Work& work) {
        const TiledWeights w = weights_.tiles(part);
        int64_t row = 0;
        if (part.groups == 2 && row_blocks_ > 0) {
            if (part.k == tiled_depth) row = multiply_whole<8>(part, w, sums, work);
            if (part.k == tiled_depth / 2) row = multiply_whole<4>(part, w, sums, work);
        }
        const auto* const x = reinterpret_cast<const int32_t*>(b_.xb);
        for (; row < b_.m; row += rows)
            multiplier_.tiles(b_.m - row < rows ? b_.m - row : rows, part.groups == 2,
                              x + row * (k_ / Pairs::size), k_ / Pairs::size, part.k0 / Pairs::size,
                              reinterpret_cast<const int32_t*>(w.w), Steps(lanes, w.vector / 4),
                              part.k / Pairs::size, sums + row / rows * panels_ * tile_row_panel,
                              part.k0 == 0);
    }
    // Returns how many rows these were.
    template <int n, class Work>
    int64_t multiply_whole(const TilePart& part, const TiledWeights& w, float* sums, Work& work) {
        using Tiles = WholeTiles<n>;
        multiplier_.configure_whole();
        const auto* const x = reinterpret_cast<const std::byte*>(b_.xb);
        const int64_t half = TileMultiplier::rows * k_ * 2, next = part.k0 + depth_;
        const int64_t share = part.panel * Tiles::share_bytes,
                      of_half = tiled_depth * TileMultiplier::rows * 2;
        const std::byte* ask = nullptr;
        if (b_.m * k_ * 2 > kept_rows_bytes)
            ask = x + (next < k_ ? next : 0) * TileMultiplier::rows * 2 + share / of_half * half +
                  share % of_half;
        Tiles{x + part.k0 * TileMultiplier::rows * 2,
              half,
              w.w,
              w.vector,
              reinterpret_cast<std::byte*>(sums),
              panels_ * tile_row_panel * 4,
              part.k0 == 0,
              ask}
            .multiply(row_blocks_, work);
        return row_blocks_ * rows;
    }

    const MatmulBlock& b_;
    const Weights& weights_;
    Groups groups_;
    int64_t n0_, n_;
    bool few_;  // few rows go through K at once: their weights come from memory, as one stream of each group
    int64_t k_, depth_, slices_;  // slices: parts of a panel
    int64_t width_, panels_;      // columns of a block, and its panels
    int64_t row_blocks_;          // whole ones
    TileMultiplier multiplier_;
    TileResults<Results> results_;
};

// The whole block. Weights that are used in place are packed for tile_columns columns at a time.
template <class Weights>
inline void tiled_block(const MatmulBlock& b, const Weights& weights, std::byte* packed) {
    const PlainResults results(b);
    if (b.packed) return TiledProduct<Weights, PlainResults>(b, weights, results, {b.w}, 0, b.n).run();
    for (int64_t n0 = 0; n0 < b.n; n0 += tile_columns) {
        const int64_t n = b.n - n0 < tile_columns ? b.n - n0 : tile_columns;
        TiledProduct<Weights, PlainResults>(b, weights, results,
                                            {packed_group(b, n0, packed, n > lanes ? 2 : 1)}, n0, n)
            .run();
    }
}

inline Operand tiled_operand(const TypeInfo& type, int64_t rows, int64_t k) {
    if (type.type == Type::bf16) return k % bf16_step == 0 ? Operand::bf16 : Operand::f32;
    const Operand of_one = borrowed::matmul.operand(type, rows, k);
    return of_one == Operand::int8 && rows > few_rows ? Operand::bf16 : of_one;
}

// Calls fn(weights, scratch behind what they use).
template <class Fn>
inline void with_tiles(const MatmulBlock& b, Fn fn) {
    std::byte* const panels = b.scratch + 2 * tiled_sums_bytes;
    const auto group_bytes = static_cast<int64_t>(packed_group_bytes(*b.type, b.k));
    if (b.type->type == Type::bf16) return fn(Bf16Tiles{b, group_bytes}, panels);
    visit_codes<short_sums>(b.type->type, [&]<class Fmt>() {
        fn(CodeTiles<Fmt>{b, group_bytes, panels}, panels + 2 * tiled_panel_bytes);
    });
}

// What tiles do not multiply is left to the kernels of namespace borrowed. So are up to stream_rows rows of
// int8: vectors are as fast with them, and they lie in one tile for both.
inline void tiled_matmul(const MatmulBlock& b) {
    if (b.operand == Operand::int8 && b.m > stream_rows) return multiply_int8(b);
    if (b.operand != Operand::bf16) return borrowed::matmul.block(b);
    if (in_registers(b)) return multiply_in_registers<PlainResults>(b, PlainResults(b), {b.w});
    with_tiles(b, [&](const auto& weights, std::byte* packed) { tiled_block(b, weights, packed); });
}

inline void tiled_gated(const GatedBlock& b) {
    const GatedResults results(b);
    if (in_registers(b.gate)) return multiply_in_registers<GatedResults>(b.gate, results, {b.gate.w, b.up});
    with_tiles(b.gate, [&]<class Weights>(const Weights& weights, std::byte*) {
        TiledProduct<Weights, GatedResults>(b.gate, weights, results, {b.gate.w, b.up}, 0, 2 * b.gate.n)
            .run();
    });
}

inline size_t tiled_scratch(const TypeInfo& type, int64_t k, bool packed) {
    const size_t other = borrowed::matmul.scratch(type, k, packed);
    const size_t own = static_cast<size_t>(2 * (tiled_sums_bytes + tiled_panel_bytes)) +
                       (packed ? 0 : most_streams * packed_group_bytes(type, k));
    return own > other ? own : other;
}

constexpr MatmulKernels matmul_kernels{.operand = tiled_operand,
                                       .int8_rows = TileMultiplier::rows,
                                       .bf16_rows = TileMultiplier::rows,
                                       .round = round_row,
                                       .shape = {panel_columns, tiled_rows},
                                       .scratch = tiled_scratch,
                                       .block = tiled_matmul,
                                       .gated = tiled_gated,
                                       .gated_operand = Operand::bf16};
