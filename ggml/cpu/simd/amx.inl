// The tile operations of AMX: products of up to 16 activation rows with the 16 rows of a weight group.
// Included after a vocabulary of 16 lanes, whose packed layout is that of a B tile: a row of the tile is four
// bytes, two bf16 columns, of each of 16 weight rows. Source: Intel SDM volume 1, chapter 18.

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
