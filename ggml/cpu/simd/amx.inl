// The tile operations of AMX: products of up to 16 activation rows with the 16 rows of a weight group.
// Included after a vocabulary of 16 lanes, whose packed layout is that of a B tile: a row of the tile is four
// bytes, codes or bf16 columns, of each of 16 weight rows. Source: Intel SDM volume 1, chapter 18.

// What LDTILECFG reads: palette 1, then bytes per row and rows of each tile.
struct TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    void shape(int tile, int n, int bytes) {
        rows[tile] = static_cast<uint8_t>(n);
        row_bytes[tile] = static_cast<uint16_t>(bytes);
    }
};
static_assert(sizeof(TileConfig) == 64);

// The tile registers of the thread, in shapes for a number of activation rows; released with this.
class TileRegisters {
  public:
    TileRegisters() = default;
    ~TileRegisters() {
        if (rows_ > 0) tile_release();
    }
    TileRegisters(const TileRegisters&) = delete;
    TileRegisters& operator=(const TileRegisters&) = delete;

    // Costs about as much as the products of some blocks, so it is left out where nothing changes.
    template <class Shapes>
    void configure(int rows, Shapes shapes) {
        if (rows == rows_) return;
        rows_ = rows;
        TileConfig config;
        shapes(config);
        tile_configure(&config);
    }

  private:
    int rows_ = 0;
};

// Products of one or two tiles of activation rows with two groups of weights, K columns of codes at a time:
// sums in registers 0 to 3, rows in 4 and 5, weights in 6 and 7. Sums are stored apart from the products, so
// that nothing has to wait for the some 50 cycles that these take.
template <int K>
class Tiles {
  public:
    void configure(int rows) {
        registers_.configure(rows, [rows](TileConfig& config) {
            for (int sum = 0; sum < 4; ++sum) config.shape(sum, rows, lanes * 4);
            for (const int x : {4, 5}) config.shape(x, rows, K);
            for (const int w : {6, 7}) config.shape(w, K / 4, lanes * 4);
        });
    }

    // The sums over K columns of tiles x, int8_block bytes a row, and w, the second group w_step behind.
    template <int A>
    void multiply(const int8_t* const (&x)[A], const std::byte* w, int64_t w_step) const {
        tile_zero<0>();
        tile_zero<1>();
        tile_load<4>(x[0], int8_block);
        tile_load<6>(w, lanes * 4);
        tile_dot_int8<0, 4, 6>();
        tile_load<7>(w + w_step, lanes * 4);
        tile_dot_int8<1, 4, 7>();
        if constexpr (A == 2) {
            tile_zero<2>();
            tile_zero<3>();
            tile_load<5>(x[1], int8_block);
            tile_dot_int8<2, 5, 6>();
            tile_dot_int8<3, 5, 7>();
        }
    }

    // Both sums of each of A tiles of rows, out[row][16] and `step` from one to the next.
    template <int A>
    void store(int32_t* out, int64_t step) const {
        tile_store<0>(out, lanes * 4);
        tile_store<1>(out + step, lanes * 4);
        if constexpr (A == 2) {
            tile_store<2>(out + 2 * step, lanes * 4);
            tile_store<3>(out + 3 * step, lanes * 4);
        }
    }

  private:
    TileRegisters registers_;
};
