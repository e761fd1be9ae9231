// What becomes of the sums that tiles leave: results of a product, or what a gated unit makes of two
// products. Row by row, and a row in eight steps, so that it can be done between the products of tiles.

// A part of K whose weights (16 KiB of 32 columns) and 32 rows stay in the first-level cache; the sums of a
// block, and its rows of such a part, in the second-level one.
constexpr int64_t tiled_depth = 256, tiled_columns = 128, tiled_rows = 512;
constexpr int64_t tile_columns = 2 * lanes;  // of TileMultiplier
constexpr int64_t tiled_sums_bytes = tiled_rows * tiled_columns * 4;
constexpr int64_t tiled_panel_bytes = tiled_depth * tile_columns * 2;
constexpr int64_t register_bytes = 16 * 64;
// Rows of more bytes do not stay in the second-level cache with all else that is in use.
constexpr int64_t kept_rows_bytes = 1 << 20;

// Where the packed weights of the columns of some matrices begin.
template <int64_t n>
struct TiledGroups {
    const std::byte* of[n];
};

// Where the sums of a row of 16 columns lie, behind those of its first 16, and those of the next
// tile_columns.
constexpr int64_t tile_row_vector = TileMultiplier::sums, tile_row_panel = 4 * TileMultiplier::sums;
constexpr int64_t tile_row_at(int64_t vector) {
    return vector / 2 * tile_row_panel + vector % 2 * tile_row_vector;
}

// out = sums + bias + residual.
class PlainResults {
  public:
    static constexpr int64_t parts = 1;  // sums for one of the results

    struct Row {
        const float* sums;
        float* out = nullptr;  // null: there is none
        const float *bias, *residual;
        int64_t n;
        bool streams;

        template <int i>
        [[gnu::always_inline]] void step() const {
            const int64_t left = n - i * lanes;
            if (left <= 0) return;
            F x = load(sums + tile_row_at(i));
            if (left >= lanes) {
                if (bias) x = x + load(bias + i * lanes);
                if (residual) x = x + load(residual + i * lanes);
                streams ? store_past_cache(out + i * lanes, x) : store(out + i * lanes, x);
            } else {
                if (bias) x = x + load_n(bias + i * lanes, left);
                if (residual) x = x + load_n(residual + i * lanes, left);
                store_n(out + i * lanes, x, left);
            }
        }
    };

    explicit PlainResults(const MatmulBlock& b)
        : b_(b),
          streams_(b.past_cache && b.out_stride % lanes == 0 &&
                   reinterpret_cast<uintptr_t>(b.out) % 64 == 0) {}

    // Columns [n0, n0 + n) of row r; the second sums of each are so many floats behind the first.
    Row row(const float* sums, int64_t /*second*/, int64_t r, int64_t n0, int64_t n) const {
        return {sums,
                b_.out + r * b_.out_stride + n0,
                b_.bias ? b_.bias + n0 : nullptr,
                b_.residual ? b_.residual + r * b_.residual_stride + n0 : nullptr,
                n,
                streams_};
    }
    void finish() const {
        if (streams_) await_stores();
    }

  private:
    const MatmulBlock& b_;
    bool streams_;
};

// The first sums are a gate's, the second ones what it gates: act(gate) * up, in bf16.
class GatedResults {
  public:
    static constexpr int64_t parts = 2;

    struct Row {
        const GatedBlock* block;
        const float *gate, *up;
        uint16_t* out = nullptr;  // null: there is none
        int64_t out_step;         // from one bf16_step columns to the next
        const float *gate_bias, *up_bias;
        int64_t n;
        bool is_silu;

        template <int i>
        [[gnu::always_inline]] void step() const {
            constexpr int v = i / 2;
            if (i % 2 > 0 || v * lanes >= n) return;
            F g = load(gate + tile_row_at(v)), u = load(up + tile_row_at(v));
            if (gate_bias) g = g + load(gate_bias + v * lanes);
            if (up_bias) u = u + load(up_bias + v * lanes);
            const F y = is_silu ? silu(g) * u : other(g, u);
            Pairs::store_weights(reinterpret_cast<float*>(out + v / 2 * out_step), v % 2 * lanes, y);
        }

      private:
        [[gnu::noinline]] F other(F g, F u) const {
            alignas(64) float x[3][lanes];
            store(x[0], g), store(x[1], u);
            block->glu(*block->params, x[0], x[1], x[2], lanes);
            return load(x[2]);
        }
    };

    explicit GatedResults(const GatedBlock& b)
        : b_(b),
          is_silu_(b.params->act == Activation::silu && b.params->limit == 0 && b.params->up_shift == 0) {}

    Row row(const float* sums, int64_t second, int64_t r, int64_t n0, int64_t n) const {
        const int64_t top = r / TileMultiplier::rows * TileMultiplier::rows, left = b_.gate.m - top;
        const int64_t height = left < TileMultiplier::rows ? left : TileMultiplier::rows;
        const int64_t column = b_.column + n0, in_step = column % bf16_step;
        return {&b_,
                sums,
                sums + second,
                b_.bf16 + top * b_.out_stride + (column - in_step) * height + (r - top) * bf16_step + in_step,
                height * bf16_step,
                b_.gate.bias ? b_.gate.bias + n0 : nullptr,
                b_.up_bias ? b_.up_bias + n0 : nullptr,
                n,
                is_silu_};
    }
    static void finish() {}

  private:
    const GatedBlock& b_;
    bool is_silu_;
};

// Sums of tiled_columns columns or fewer on their way to the results, row by row: 32 rows of tile_columns
// columns follow each other as TileMultiplier leaves them, then those of the rows below.
template <class Results>
class TileResults {
  public:
    using Row = typename Results::Row;

    TileResults(const Results& results, int64_t rows) : results_(results), m_(rows) {}

    // The sums of columns [n0, n0 + n).
    void begin(const float* sums, int64_t panels, int64_t n0, int64_t n) {
        sums_ = sums, panels_ = panels, n0_ = n0, n_ = n, next_ = 0, end_ = m_;
    }
    Row next() {
        if (next_ == end_) return {};
        constexpr int64_t rows = TileMultiplier::rows;
        const int64_t r = next_++;
        return results_.row(sums_ + r / (2 * rows) * panels_ * tile_row_panel +
                                r / rows % 2 * 2 * tile_row_vector + r % rows * lanes,
                            n_ / tile_columns * tile_row_panel, r, n0_, n_);
    }
    // So many rows, or all that are left.
    [[gnu::noinline]] void rows(int64_t n) {
        for (Row r; n > 0 && (r = next()).out; --n) steps(r);
    }
    void finish() {
        rows(m_);
        results_.finish();
    }

  private:
    template <int i = 0>
    static void steps(const Row& row) {
        row.template step<i>();
        if constexpr (i < 7) steps<i + 1>(row);
    }

    const Results& results_;
    int64_t m_;
    const float* sums_ = nullptr;
    int64_t panels_ = 1, n0_ = 0, n_ = 0, next_ = 0, end_ = 0;
};
static_assert(tiled_columns == 8 * lanes);
