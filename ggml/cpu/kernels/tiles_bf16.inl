// Pairs of bf16 on tiles, for attention and bf16 weights: 16 rows by 16 pairs by 16 columns at a time.
// One row is multiplied so as well: vectors would add in another order.

// Up to 32 rows times 32 columns: sums in registers 0 to 3, rows in 4 and 5, columns in 6 and 7.
class TileMultiplier {
  public:
    static constexpr int64_t rows = 16, depth = 16;  // of a register: rows, numbers of 32 bits in a row
    static constexpr int64_t most_depth = 256;       // of a block: its rows stay in the first-level cache

    // fma_block() of pairs; whole registers of columns, k rounded up to their depth: there x or w is zero.
    void block(int64_t m, int64_t cols, const int32_t* x, int64_t ldx, const int32_t* w, Steps steps,
               int64_t k, float* c, int64_t ldc, bool from_zero) {
        for (int64_t r = 0; r < m; r += 2 * rows) {
            const int64_t left = m - r, first = left < rows ? left : rows,
                          second = left - first < rows ? left - first : rows;
            configure(static_cast<int>(first), static_cast<int>(second));
            for (int64_t n = 0; n < cols; n += 2 * lanes) {
                const Factors f{
                    x + r * ldx, w + n / lanes * steps.vector, c + r * ldc + n, ldx, ldc, k, steps,
                    from_zero};
                const bool pair = n + lanes < cols;
                if (second > 0)
                    pair ? multiply<2, 2>(f) : multiply<2, 1>(f);
                else
                    pair ? multiply<1, 2>(f) : multiply<1, 1>(f);
            }
        }
    }

  private:
    struct Factors {
        const int32_t *x, *w;
        float* c;
        int64_t ldx, ldc, k;
        Steps steps;
        bool from_zero;
    };

    void configure(int first, int second) {
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

    // Calls fn.operator()<sum, half, v>() for the sums in use.
    template <int A, int V, class Fn>
    static void each_sum(Fn fn) {
        fn.template operator()<0, 0, 0>();
        if constexpr (V == 2) fn.template operator()<1, 0, 1>();
        if constexpr (A == 2) fn.template operator()<2, 1, 0>();
        if constexpr (A == 2 && V == 2) fn.template operator()<3, 1, 1>();
    }

    template <int A, int V>
    static void multiply(const Factors& f) {
        const auto place = [&](int half, int v) { return f.c + half * rows * f.ldc + v * lanes; };
        each_sum<A, V>([&]<int sum, int half, int v>() {
            if (f.from_zero)
                tile_zero<sum>();
            else
                tile_load<sum>(place(half, v), f.ldc * 4);
        });
        for (int64_t i = 0; i < f.k; i += depth) {
            tile_load<4>(f.x + i, f.ldx * 4);
            if constexpr (A == 2) tile_load<5>(f.x + rows * f.ldx + i, f.ldx * 4);
            tile_load<6>(f.w + i * f.steps.row, f.steps.row * 4);
            if constexpr (V == 2) tile_load<7>(f.w + i * f.steps.row + f.steps.vector, f.steps.row * 4);
            each_sum<A, V>([]<int sum, int half, int v>() { tile_dot_bf16<sum, 4 + half, 6 + v>(); });
        }
        each_sum<A, V>([&]<int sum, int half, int v>() { tile_store<sum>(place(half, v), f.ldc * 4); });
    }

    TileRegisters registers_;
};

struct TilePairs : Pairs {
    using Multiplier = TileMultiplier;
    static constexpr int64_t depth = TileMultiplier::depth;
};
