// Matmul on tiles (AMX): weights in bf16 as they lie, and codes against many rows, decoded into a panel.
// By the number of rows of a product codes meet activations in int8 or in bf16: see few_rows.

// What all rows are multiplied by before the next: a part of K of tile_columns columns.
struct TilePart {
    const std::byte* group;  // of the packed weights
    int64_t n0;              // their first column
    int64_t groups;          // one or two
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

// Byte i of every lane and 256, as floats: the byte is the upper part of the fraction.
template <int i>
inline F byte_and_256(I bytes) {
    return as_float(or_i(and_i(shifted<8 * i - 15>(bytes), set1_i(0x7f8000)), set1_i(0x43800000)));
}

// Codes become scale * code + minimum, rounded to bf16. Since the 256 that bytes come with is taken off in
// the same operation, that is off by at most a 65536th of the scale before it is rounded.
template <class Fmt>
struct CodeTiles {
    using Stream = CodeStream<Fmt>;
    const MatmulBlock& b;
    int64_t group_bytes;
    std::byte* panels;  // two
    struct Unit {
        Stream stream;
        int64_t block;
        std::byte* out;
    };

    static bool few() { return false; }
    TiledWeights tiles(const TilePart& p) const { return {panel(p), panel_half}; }
    int64_t units(const TilePart& p) const { return p.groups * (p.k / int8_block); }
    Unit unit(const TilePart& p, int64_t i) const {
        const int64_t each = p.k / int8_block, v = i < each ? 0 : 1, at = i - v * each;
        return {Stream(p.group + v * group_bytes, b.lookahead), p.k0 / int8_block + at,
                panel(p) + v * panel_half + at * (16 * lanes * 4)};
    }
    template <int quad>
    [[gnu::always_inline]] void prepare(const Unit& u) const {
        std::byte* const out = u.out + quad * 2 * lanes * 4;
        Stream stream = u.stream;
        if constexpr (quad == 0) stream.prefetch(u.block);
        stream.begin(u.block);
        constexpr int m = quad * Stream::min_halves / 8, h = quad * Stream::halves / 8;
        const F scale = stream.scale(0, h), zero = set1(-256 - Stream::panel_zero);
        F base = zero * scale;
        if constexpr (Stream::has_min) base = fma(zero, scale, stream.min(0, m));
        const I q = stream.panel_codes(quad);
        store_i(out, Pairs::join(fma(byte_and_256<0>(q), scale, base), fma(byte_and_256<1>(q), scale, base)));
        store_i(out + lanes * 4,
                Pairs::join(fma(byte_and_256<2>(q), scale, base), fma(byte_and_256<3>(q), scale, base)));
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
        Share share{weights.unit(next, prepared), {}, false};
        int64_t more = units < total_units - prepared ? units : total_units - prepared;
        share.has_unit = more > 0;
        if (more > 1) prepare_units(weights, next, prepared + 1, prepared + more);
        prepared += more;
        if (rows > 1) results.rows(rows - 1);
        if (rows > 0) share.row = results.next();
        return share;
    }
    template <int i>
    [[gnu::always_inline]] void step(const Share& share) const {
        if (share.has_unit) weights.template prepare<i>(share.unit);
        if (share.row.out) share.row.template step<i>();
    }
    void end() { prepare_units(weights, next, prepared, total_units); }
};

// 32 rows at a time against tiled_depth columns of K of tile_columns columns, all of them whole. A sum is
// stored, and that of the next rows takes its register, as soon as its last product is on its way: the others
// go on meanwhile.
struct WholeTiles {
    static constexpr int64_t step_bytes = 16 * 64, sums_bytes = TileMultiplier::sums * 4;
    const std::byte* x;  // of the first 16 rows
    int64_t x_half;      // to the next 16
    const std::byte* w;  // of the first group
    int64_t w_half;      // to the second
    std::byte* c;        // sums of the first rows
    int64_t c_step;      // to those of the next
    bool from_zero;

    template <class Work>
    void multiply(int64_t blocks, Work& work) {
        begin<0>(c), begin<1>(c), begin<2>(c), begin<3>(c);
        for (; blocks > 0; --blocks, x += 2 * x_half, c += c_step) steps(blocks > 1, work, work.begin());
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
        if constexpr (i == 7) {
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
        work.template step<i>(share);
        if constexpr (i < 7) steps<i + 1>(more, work, share);
    }
};
static_assert(tiled_depth == 8 * bf16_step && tiled_columns == 8 * lanes);

// The sums of n columns of a block. Of Results::parts matrices they take as many columns each, in every
// tiled_columns of sums one matrix after the other; these columns' packed weights begin at `groups`. In the
// results they are columns [n0, n0 + n).
template <class Weights, class Results>
inline void multiply_on_tiles(const MatmulBlock& b, const Weights& weights, const Results& kind,
                              const std::byte* const (&groups)[Results::parts], int64_t n0, int64_t n,
                              float* c) {
    constexpr int64_t rows = 2 * TileMultiplier::rows, of_block = 4 * TileMultiplier::sums;
    const auto* const x = reinterpret_cast<const int32_t*>(b.xb);
    // Few rows go through K at once: their weights come from memory, as one stream of each group.
    const bool few = Results::parts == 1 && weights.few();
    const int64_t k = b.xb_stride, depth = few ? k : tiled_depth, slices = (k + depth - 1) / depth;
    const int64_t width = few ? tile_columns : tiled_columns, panels = width / tile_columns;
    const auto part_at = [&](int64_t number) {
        const int64_t block = number / (slices * panels), left = n - block * width;
        const int64_t here = left < width ? (left + tile_columns - 1) / tile_columns : panels;
        const int64_t in_block = number - block * slices * panels;
        const int64_t panel = in_block % here, of_one = here / Results::parts, k0 = in_block / here * depth;
        const int64_t column = block * width + panel * tile_columns;
        const int64_t in_matrix = block * (width / Results::parts) + panel % of_one * tile_columns;
        return TilePart{groups[panel / of_one] + in_matrix / lanes * weights.group_bytes,
                        n0 + column,
                        n - column > lanes ? 2 : 1,
                        k0,
                        k - k0 < depth ? k - k0 : depth,
                        number};
    };
    const int64_t whole = n / width, rest = (n - whole * width + tile_columns - 1) / tile_columns;
    const int64_t parts = (whole * panels + rest) * slices, row_blocks = b.m / rows;
    const auto shared = [](int64_t units, int64_t among) {
        return among > 0 ? (units + among - 1) / among : 0;
    };
    TileMultiplier multiplier;
    TileResults<Results> results(kind, b.m);
    TilePart next = part_at(0);
    prepare_units(weights, next, 0, weights.units(next));
    for (int64_t number = 0; number < parts; ++number) {
        const TilePart part = next;
        const int64_t column = part.n0 - n0, block = column / width;
        int64_t units = 0;
        if (number + 1 < parts) {
            next = part_at(number + 1);
            units = weights.units(next);
        }
        const TiledWeights w = weights.tiles(part);
        float* const sums_of_block = c + block % 2 * (tiled_sums_bytes / 4);
        float* const sums = sums_of_block + column % width / tile_columns * of_block;
        TileWork<Weights, Results> work{weights, results,
                                        next,    shared(units, row_blocks),
                                        units,   shared(b.m, row_blocks * panels * slices)};
        int64_t row = 0;
        if (part.k == tiled_depth && part.groups == 2 && row_blocks > 0) {
            multiplier.configure_whole();
            const int64_t half = TileMultiplier::rows * k * 2;
            WholeTiles{reinterpret_cast<const std::byte*>(b.xb) + part.k0 * TileMultiplier::rows * 2,
                       half,
                       w.w,
                       w.vector,
                       reinterpret_cast<std::byte*>(sums),
                       panels * of_block * 4,
                       part.k0 == 0}
                .multiply(row_blocks, work);
            row = row_blocks * rows;
        }
        for (; row < b.m; row += rows)
            multiplier.tiles(b.m - row < rows ? b.m - row : rows, part.groups == 2,
                             x + row * (k / Pairs::size), k / Pairs::size, part.k0 / Pairs::size,
                             reinterpret_cast<const int32_t*>(w.w), Steps(lanes, w.vector / 4),
                             part.k / Pairs::size, sums + row / rows * panels * of_block, part.k0 == 0);
        work.end();
        if (number + 1 < parts && next.n0 - n0 < (block + 1) * width) continue;
        results.finish();
        const int64_t left = n - block * width;
        results.begin(sums_of_block, panels, n0 + block * width, left < width ? left : width);
    }
    results.finish();
}

// The whole block. Weights that are used in place are packed for tile_columns columns at a time.
template <class Weights>
inline void tiled_block(const MatmulBlock& b, const Weights& weights, std::byte* packed) {
    float* const c = reinterpret_cast<float*>(b.scratch);
    const PlainResults results(b);
    if (b.packed) return multiply_on_tiles(b, weights, results, {b.w}, 0, b.n, c);
    for (int64_t n0 = 0; n0 < b.n; n0 += tile_columns) {
        const int64_t n = b.n - n0 < tile_columns ? b.n - n0 : tile_columns;
        multiply_on_tiles(b, weights, results, {packed_group(b, n0, packed, n > lanes ? 2 : 1)}, n0, n, c);
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
    visit_format(b.type->type, [&]<class Fmt>() {
        if constexpr (code_layout<Fmt>().bits > 0)
            fn(CodeTiles<Fmt>{b, group_bytes, panels}, panels + 2 * tiled_panel_bytes);
    });
}

// What tiles do not multiply is left to the kernels of namespace borrowed.
inline void tiled_matmul(const MatmulBlock& b) {
    if (b.operand != Operand::bf16) return borrowed::matmul.block(b);
    with_tiles(b, [&](const auto& weights, std::byte* packed) { tiled_block(b, weights, packed); });
}

inline void tiled_gated(const GatedBlock& b) {
    with_tiles(b.gate, [&](const auto& weights, std::byte*) {
        multiply_on_tiles(b.gate, weights, GatedResults(b), {b.gate.w, b.up}, 0, 2 * b.gate.n,
                          reinterpret_cast<float*>(b.gate.scratch));
    });
}

inline size_t tiled_scratch(const TypeInfo& type, int64_t k, bool packed) {
    const size_t other = borrowed::matmul.scratch(type, k, packed);
    const size_t own = static_cast<size_t>(2 * (tiled_sums_bytes + tiled_panel_bytes)) +
                       (packed ? 0 : 2 * packed_group_bytes(type, k));
    return own > other ? own : other;
}

constexpr MatmulKernels matmul_kernels{.operand = tiled_operand,
                                       .bf16_rows = TileMultiplier::rows,
                                       .round = round_row,
                                       .shape = {panel_columns, tiled_rows},
                                       .scratch = tiled_scratch,
                                       .block = tiled_matmul,
                                       .gated = tiled_gated};
