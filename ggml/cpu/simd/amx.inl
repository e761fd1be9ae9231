// The tile operations of AMX: int8 products of up to 16 activation rows with the 16 rows of a weight group.
// Included after a vocabulary of 16 lanes, whose packed layout of codes is that of a B tile: a row of the
// tile is a quad, four columns of each of 16 weight rows. Source: Intel SDM volume 1, chapter 18.

// What LDTILECFG reads: palette 1, then bytes per row and rows of each tile.
struct TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Tiles of up to 8 activation rows and K columns; the configuration belongs to the thread while this lives.
// Two sets of registers, so that the products of one block can start before those of another are stored.
template <int K>
class Tiles {
  public:
    Tiles() = default;
    ~Tiles() {
        if (rows_ > 0) _tile_release();
    }
    Tiles(const Tiles&) = delete;
    Tiles& operator=(const Tiles&) = delete;

    // Costs about as much as the products of some blocks, so it is left out where nothing changes.
    void configure(int rows) {
        if (rows == rows_) return;
        rows_ = rows;
        TileConfig config;
        const auto shape = [&config](int tile, int n, int row_bytes) {
            config.rows[tile] = static_cast<uint8_t>(n);
            config.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
        };
        for (const int set : {0, 3}) {
            shape(set, rows, K);
            shape(set + 1, K / 4, lanes * 4);
            shape(set + 2, rows, lanes * 4);
        }
        // GCC 12's _tile_loadconfig declares 8 of the 64 bytes as read and lets stores to the rest be
        // dropped.
        asm volatile("ldtilecfg %0" : : "m"(config));
    }

    // out[r][0..16) = the sums over K columns of x[r] and w; x has int8_block bytes a row.
    template <int set>
    void multiply(const int8_t* x, const std::byte* w, int32_t* out) const {
        // The tile loads of GCC 12 do not say that they read memory.
        asm volatile("" : : : "memory");
        if constexpr (set == 0) {
            _tile_zero(2);
            _tile_loadd(0, x, int8_block);
            _tile_loadd(1, w, lanes * 4);
            _tile_dpbssd(2, 0, 1);
            _tile_stored(2, out, lanes * 4);
        } else {
            _tile_zero(5);
            _tile_loadd(3, x, int8_block);
            _tile_loadd(4, w, lanes * 4);
            _tile_dpbssd(5, 3, 4);
            _tile_stored(5, out, lanes * 4);
        }
    }

  private:
    int rows_ = 0;
};
