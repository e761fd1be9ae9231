// Pairs of bf16 on tiles, for matmul and attention: 16 rows by 16 pairs by 16 columns at a time.
// One row is multiplied so as well: vectors would add in another order.

// Up to 32 rows times 32 columns: sums in registers 0 to 3, rows in 4 and 5, columns in 6 and 7.
class TileMultiplier {
  public:
    static constexpr int64_t rows = 16, depth = 16;  // of a register: rows, numbers of 32 bits in a row

    // fma_block() of pairs; whole registers of columns, k rounded up to their depth: there x or w is zero.
    void block(int64_t m, int64_t cols, const int32_t* x, int64_t ldx, const int32_t* w, Steps steps,
               int64_t k, float* c, int64_t ldc, bool from_zero) {
        for (int64_t r = 0; r < m; r += 2 * rows) {
            const int64_t left = m - r, first = left < rows ? left : rows,
                          second = left - first < rows ? left - first : rows;
            configure(static_cast<int>(first), static_cast<int>(second));
            const Factors f{{{x + r * ldx, depth}, {x + (r + rows) * ldx, depth}}, ldx, steps, k, from_zero};
            for (int64_t n = 0; n < cols; n += 2 * lanes)
                multiply(f, w + n / lanes * steps.vector, n + lanes < cols,
                         {c + r * ldc + n, ldc, lanes, rows * ldc});
        }
    }

    // The same of one or two registers of columns, with up to 32 rows in tiles: of `x_row` numbers of each
    // row those from k0 on are multiplied (bf16_step in kernel_table.h). Sums lie as registers hold them, 16
    // by 16: two beside each other, then the two below.
    static constexpr int64_t sums = rows * lanes;  // of a register
    void tiles(int64_t m, bool pair, const int32_t* x, int64_t x_row, int64_t k0, const int32_t* w,
               Steps steps, int64_t k, float* c, bool from_zero) {
        const int64_t first = m < rows ? m : rows, second = m - first;
        configure(static_cast<int>(first), static_cast<int>(second));
        const Factors f{{{x + k0 * first, first * depth}, {x + rows * x_row + k0 * second, second * depth}},
                        depth,
                        steps,
                        k,
                        from_zero};
        multiply(f, w, pair, {c, lanes, sums, 2 * sums});
    }

    // The shapes of 32 rows, for those that use the registers themselves.
    void configure_whole() { configure(rows, rows); }

  private:
    // Up to 16 rows: where their first depth numbers lie, and how far behind them the next.
    struct Rows {
        const int32_t* at;
        int64_t step;
    };
    struct Factors {
        Rows x[2];
        int64_t ldx;  // from one row to the next
        Steps steps;  // of the weights
        int64_t k;
        bool from_zero;
    };
    // Where sums lie: steps from one row, register of columns and register of rows to the next.
    struct Sums {
        float* at;
        int64_t row, vector, half;
        float* of(int h, int v) const { return at + h * half + v * vector; }
    };

    void configure(int first, int second) {
        second_ = second > 0;
        registers_.configure(first + static_cast<int>(rows + 1) * second, [&](TileConfig& config) {
            const int count[2] = {first, second};
            for (int half = 0; half < 2; ++half) {
                if (count[half] == 0) continue;
                for (int v = 0; v < 2; ++v) config.shape(2 * half + v, count[half], lanes * 4);
                config.shape(4 + half, count[half], static_cast<int>(depth) * 4);
            }
            for (const int w : {6, 7}) config.shape(w, static_cast<int>(depth), lanes * 4);
        });
    }

    [[gnu::always_inline]] void multiply(const Factors& f, const int32_t* w, bool pair, const Sums& c) const {
        if (second_)
            pair ? multiply<2, 2>(f, w, c) : multiply<2, 1>(f, w, c);
        else
            pair ? multiply<1, 2>(f, w, c) : multiply<1, 1>(f, w, c);
    }

    // Calls fn.operator()<sum, half, v>() for the sums in use.
    template <int A, int V, class Fn>
    static void each_sum(Fn fn) {
        fn.template operator()<0, 0, 0>();
        if constexpr (V == 2) fn.template operator()<1, 0, 1>();
        if constexpr (A == 2) fn.template operator()<2, 1, 0>();
        if constexpr (A == 2 && V == 2) fn.template operator()<3, 1, 1>();
    }

    // Inlined by force, so that factors stay in registers: put into memory in parts and read from there as a
    // whole, they would wait until the stores of tiles before them are done.
    template <int A, int V>
    [[gnu::always_inline]] static void multiply(const Factors& f, const int32_t* w, const Sums& c) {
        each_sum<A, V>([&]<int sum, int half, int v>() {
            if (f.from_zero)
                tile_zero<sum>();
            else
                tile_load<sum>(c.of(half, v), c.row * 4);
        });
        const int32_t *first = f.x[0].at, *second = f.x[1].at;
        for (int64_t i = 0; i < f.k; i += depth, w += depth * f.steps.row) {
            tile_load<4>(first, f.ldx * 4);
            first += f.x[0].step;
            tile_load<6>(w, f.steps.row * 4);
            tile_dot_bf16<0, 4, 6>();
            if constexpr (V == 2) {
                tile_load<7>(w + f.steps.vector, f.steps.row * 4);
                tile_dot_bf16<1, 4, 7>();
            }
            if constexpr (A == 2) {
                tile_load<5>(second, f.ldx * 4);
                second += f.x[1].step;
                tile_dot_bf16<2, 5, 6>();
                if constexpr (V == 2) tile_dot_bf16<3, 5, 7>();
            }
        }
        each_sum<A, V>([&]<int sum, int half, int v>() { tile_store<sum>(c.of(half, v), c.row * 4); });
    }

    TileRegisters registers_;
    bool second_ = false;
};

struct TilePairs : Pairs {
    using Multiplier = TileMultiplier;
    static constexpr int64_t depth = TileMultiplier::depth;
};
