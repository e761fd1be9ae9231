// Products of some dozens of rows on tiles, whose sums stay in the registers through all of K: 16 columns at
// a time, and of codes each step's weights become a tile a little before they are multiplied.

// The weights of 16 columns: the tile of a step of K, and one to come in eight quads. Those are cut in
// between products, which otherwise would wait behind more instructions than the processor looks ahead.
template <class Fmt>
class CodeColumns {
  public:
    struct Unit {
        CodeUnit<Fmt> codes;
        std::byte* tile;
    };
    static constexpr int64_t ahead = 2, slots = 4;

    // `ring`: memory of `slots` tiles.
    CodeColumns(const MatmulBlock& b, const std::byte* group, std::byte* ring)
        : group_(group), b_(b), ring_(ring), steps_(b.xb_stride / bf16_step) {}
    const std::byte* tile(int64_t step) const { return slot(step); }
    [[gnu::always_inline]] Unit unit(int64_t step) const {  // behind the last step: of any, into a free slot
        return {{group_, b_, step < steps_ ? step : steps_ - 1}, slot(step)};
    }
    template <int quad, int end>
    [[gnu::always_inline]] static void prepare(const Unit& u) {
        u.codes.template write<quad>(u.tile);
        if constexpr (quad + 1 < end) prepare<quad + 1, end>(u);
    }
    // The steps before the first product. Not inlined: there are as many callers as numbers of tiles.
    [[gnu::noinline]] void prepare_first() const {
        for (int64_t step = 0; step < ahead && step < steps_; ++step) prepare<0, 8>(unit(step));
    }

  private:
    std::byte* slot(int64_t step) const { return ring_ + step % slots * register_bytes; }

    const std::byte* group_;
    const MatmulBlock& b_;
    std::byte* ring_;
    int64_t steps_;
};

// The sums of up to five tiles of rows and 16 columns.
template <class Fmt>
class RegisterSums {
  public:
    static constexpr int64_t rows = TileMultiplier::rows, most = 5;  // rows: of a tile
    static constexpr int64_t tile_floats = rows * lanes, floats = most * tile_floats;
    static constexpr int64_t ring_bytes = CodeColumns<Fmt>::slots * register_bytes;

    RegisterSums(const MatmulBlock& b, std::byte* ring)
        : b_(b), ring_(ring), steps_(b.xb_stride / bf16_step) {}

    // Of rows [r0, r1), in up to five tiles, the last of which may be lower, times a group: tile after
    // tile.
    void multiply(int64_t r0, int64_t r1, const std::byte* group, float* c) {
        const CodeColumns<Fmt> columns(b_, group, ring_);
        const int64_t tiles = (r1 - r0 + rows - 1) / rows;
        if (tiles == 1) multiply<1>(columns, r0, r1, c);
        if (tiles == 2) multiply<2>(columns, r0, r1, c);
        if (tiles == 3) multiply<3>(columns, r0, r1, c);
        if (tiles == 4) multiply<4>(columns, r0, r1, c);
        if (tiles == 5) multiply<5>(columns, r0, r1, c);
    }

  private:
    // Sums are in registers 0 to R - 1.
    static constexpr int whole_rows = 5, last_rows = 6, weights = 7;

    template <int R>
    void multiply(const CodeColumns<Fmt>& columns, int64_t r0, int64_t r1, float* c) {
        const int64_t last = r1 - r0 - (R - 1) * rows;  // rows of the last tile
        registers_.configure(static_cast<int>(r1 - r0), [&](TileConfig& config) {
            for (int t = 0; t < 8; ++t) config.shape(t, static_cast<int>(rows), 64);
            for (const int t : {R - 1, last_rows}) config.shape(t, static_cast<int>(last), 64);
        });
        const auto* const x = reinterpret_cast<const std::byte*>(b_.xb + r0 * b_.xb_stride);
        const int64_t tile = rows * b_.xb_stride * 2;
        for_tiles<R>([]<int t>() { tile_zero<t>(); });
        columns.prepare_first();
        for (int64_t step = 0; step < steps_; ++step) {
            const auto unit = columns.unit(step + columns.ahead);
            tile_load<weights>(columns.tile(step), 64);
            for_tiles<R>([&]<int t>() __attribute__((always_inline)) {
                constexpr int of_rows = t == R - 1 ? last_rows : whole_rows;
                tile_load<of_rows>(x + t * tile + step * (t == R - 1 ? last * 64 : register_bytes), 64);
                tile_dot_bf16<t, of_rows, weights>();
                columns.template prepare<8 * t / R, 8 * (t + 1) / R>(unit);
            });
        }
        for_tiles<R>([&]<int t>() { tile_store<t>(c + t * tile_floats, 64); });
    }

    template <int n, class Fn>
    [[gnu::always_inline]] static void for_tiles(const Fn& fn) {
        [&]<int... t>(std::integer_sequence<int, t...>) __attribute__((always_inline)) {
            (fn.template operator()<t>(), ...);
        }
        (std::make_integer_sequence<int, n>());
    }

    const MatmulBlock& b_;
    std::byte* ring_;
    int64_t steps_;
    TileRegisters registers_;
};

// A block of a product, or of the two whose sums make up one result.
template <class Fmt, class Results>
inline void register_product(const MatmulBlock& b, const Results& results,
                             const TiledGroups<Results::parts>& groups) {
    using Sums = RegisterSums<Fmt>;
    auto* const c = reinterpret_cast<float*>(b.scratch + Sums::ring_bytes);
    const auto group_bytes = static_cast<int64_t>(packed_group_bytes(*b.type, b.k));
    const int64_t tiles = (b.m + Sums::rows - 1) / Sums::rows, chunks = (tiles + Sums::most - 1) / Sums::most;
    // Weights are gone through once, or as often as the second-level cache needs to keep the rows.
    const int64_t together = b.m * b.xb_stride * 2 > kept_rows_bytes ? 1 : chunks;
    Sums sums(b, b.scratch);
    const auto chunk = [&](int64_t r0, int64_t r1, int64_t n0, int64_t n) {
        for (int64_t part = 0; part < Results::parts; ++part)
            sums.multiply(r0, r1, groups.of[part] + n0 / lanes * group_bytes, c + part * Sums::floats);
        for (int64_t r = r0; r < r1; ++r)
            results.row(c + (r - r0) * lanes, Sums::floats, r, n0, n).template step<0>();
    };
    for (int64_t first = 0; first < chunks; first += together)
        for (int64_t n0 = 0; n0 < b.n; n0 += lanes)
            for (int64_t i = first; i < first + together; ++i) {
                const int64_t end = tiles * (i + 1) / chunks * Sums::rows;
                chunk(tiles * i / chunks * Sums::rows, end < b.m ? end : b.m, n0,
                      b.n - n0 < lanes ? b.n - n0 : lanes);
            }
    results.finish();
}

// With more rows, weights that become tiles anew for every 80 of them cost more than sums that go to memory
// and back in tiles.inl do, and sooner if the rows of a product do not stay in the cache.
inline bool in_registers(const MatmulBlock& b) {
    const int64_t most = b.m * b.xb_stride * 2 > kept_rows_bytes ? 96 : 160;
    return b.packed && b.type->type != Type::bf16 && b.m <= most;
}

template <class Results>
inline void multiply_in_registers(const MatmulBlock& b, const Results& results,
                                  const TiledGroups<Results::parts>& groups) {
    visit_codes<short_sums>(b.type->type, [&]<class Fmt>() { register_product<Fmt>(b, results, groups); });
}
