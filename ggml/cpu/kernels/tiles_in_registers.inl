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
        : group_(group), lookahead_(b.lookahead), ring_(ring), steps_(b.xb_stride / bf16_step) {}
    const std::byte* tile(int64_t step) const { return slot(step); }
    [[gnu::always_inline]] Unit unit(int64_t step) const {  // behind the last step: of any, into a free slot
        return {{group_, lookahead_, step < steps_ ? step : steps_ - 1}, slot(step)};
    }
    template <int quad, int end>
    [[gnu::always_inline]] static void prepare(const Unit& u) {
        u.codes.template write<quad>(u.tile);
        if constexpr (quad + 1 < end) prepare<quad + 1, end>(u);
    }

  private:
    std::byte* slot(int64_t step) const { return ring_ + step % slots * register_bytes; }

    const std::byte* group_;
    const Lookahead& lookahead_;
    std::byte* ring_;
    int64_t steps_;
};

// Up to R tiles of rows at a time, R being 3 to 5.
template <class Fmt, class Results>
class RegisterProduct {
  public:
    RegisterProduct(const MatmulBlock& b, const Results& results, const TiledGroups<Results::parts>& groups)
        : b_(b),
          results_(results),
          groups_(groups),
          steps_(b.xb_stride / bf16_step),
          sums_(reinterpret_cast<float*>(b.scratch)),
          ring_(b.scratch + Results::parts * most * register_bytes) {}

    void run() {
        const auto group_bytes = static_cast<int64_t>(packed_group_bytes(*b_.type, b_.k));
        const int64_t tiles = (b_.m + rows - 1) / rows, chunks = (tiles + most - 1) / most;
        // Weights are gone through once, or as often as the second-level cache needs to keep the rows.
        const int64_t together = b_.m * b_.xb_stride * 2 > kept_rows_bytes ? 1 : chunks;
        for (int64_t first = 0; first < chunks; first += together)
            for (int64_t n0 = 0; n0 < b_.n; n0 += lanes)
                for (int64_t c = first; c < first + together; ++c)
                    chunk(tiles * c / chunks * rows, tiles * (c + 1) / chunks * rows, n0,
                          n0 / lanes * group_bytes);
        results_.finish();
    }

  private:
    using Columns = CodeColumns<Fmt>;
    static constexpr int64_t rows = TileMultiplier::rows, most = 5;

    // Rows from r0 up to `end`, which may be behind the last one.
    void chunk(int64_t r0, int64_t end, int64_t n0, int64_t group_at) {
        const int64_t r1 = end < b_.m ? end : b_.m, n = b_.n - n0 < lanes ? b_.n - n0 : lanes;
        for (int part = 0; part < Results::parts; ++part) {
            const Columns columns(b_, groups_.of[part] + group_at, ring_);
            float* const c = sums_ + part * most * rows * lanes;
            if (end - r0 == 3 * rows) multiply<3>(columns, r0, r1, c);
            if (end - r0 == 4 * rows) multiply<4>(columns, r0, r1, c);
            if (end - r0 == 5 * rows) multiply<5>(columns, r0, r1, c);
        }
        for (int64_t r = r0; r < r1; ++r)
            results_.row(sums_ + (r - r0) * lanes, most * rows * lanes, r, n0, n).template step<0>();
    }

    // Sums of rows [r0, r1), which are R tiles.
    template <int R>
    void multiply(const Columns& columns, int64_t r0, int64_t r1, float* c) {
        const int64_t last = r1 - r0 - (R - 1) * rows;  // rows of the last tile
        registers_.configure(static_cast<int>(r1 - r0), [&](TileConfig& config) {
            for (int t = 0; t < 8; ++t) config.shape(t, static_cast<int>(rows), 64);
            for (const int t : {R - 1, last_rows}) config.shape(t, static_cast<int>(last), 64);
        });
        const auto* const x = reinterpret_cast<const std::byte*>(b_.xb + r0 * b_.xb_stride);
        const int64_t tile = rows * b_.xb_stride * 2;
        for_tiles<R>([]<int t>() { tile_zero<t>(); });
        for (int64_t step = 0; step < Columns::ahead && step < steps_; ++step)
            Columns::template prepare<0, 8>(columns.unit(step));
        for (int64_t step = 0; step < steps_; ++step) {
            const auto unit = columns.unit(step + Columns::ahead);
            tile_load<weights>(columns.tile(step), 64);
            for_tiles<R>([&]<int t>() __attribute__((always_inline)) {
                constexpr int of_rows = t == R - 1 ? last_rows : whole_rows;
                tile_load<of_rows>(x + t * tile + step * (t == R - 1 ? last * 64 : register_bytes), 64);
                tile_dot_bf16<t, of_rows, weights>();
                Columns::template prepare<8 * t / R, 8 * (t + 1) / R>(unit);
            });
        }
        for_tiles<R>([&]<int t>() { tile_store<t>(c + t * rows * lanes, 64); });
    }

    // Sums are in registers 0 to R - 1.
    static constexpr int whole_rows = 5, last_rows = 6, weights = 7;

    template <int n, class Fn>
    [[gnu::always_inline]] static void for_tiles(const Fn& fn) {
        [&]<int... t>(std::integer_sequence<int, t...>) __attribute__((always_inline)) {
            (fn.template operator()<t>(), ...);
        }
        (std::make_integer_sequence<int, n>());
    }
    const MatmulBlock& b_;
    const Results& results_;
    TiledGroups<Results::parts> groups_;
    int64_t steps_;
    float* sums_;      // `most` tiles of each part
    std::byte* ring_;  // of Columns
    TileRegisters registers_;
};

// With more rows, weights that become tiles anew for every 80 of them cost more than sums that go to memory
// and back in tiles.inl do, and sooner if the rows of a product do not stay in the cache.
inline bool in_registers(const MatmulBlock& b) {
    const int64_t most = b.m * b.xb_stride * 2 > kept_rows_bytes ? 96 : 160;
    return b.packed && b.type->type != Type::bf16 && b.m > 2 * TileMultiplier::rows && b.m <= most;
}

template <class Results>
inline void multiply_in_registers(const MatmulBlock& b, const Results& results,
                                  const TiledGroups<Results::parts>& groups) {
    visit_format(b.type->type, [&]<class Fmt>() {
        if constexpr (code_layout<Fmt>().bits > 0) RegisterProduct<Fmt, Results>(b, results, groups).run();
    });
}
