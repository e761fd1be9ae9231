// The product of one row: what a warp makes of row blocks of one format.
// Codes are multiplied as they are; scales come after, so a weight takes about one instruction.
//
// A product of m16n8k16 with one row of x has seven columns to spare. Here column n is the columns' group n
// of eight (a unit), so that the sums of eight groups lie side by side and a lane scales two of them, in f32,
// once per unit. What a group's product leaves in the other columns is not looked at.

// What a lane reads of a unit: codes of all its tiles, and the scales of groups 2t and 2t + 1.
template <TileFormat f>
struct GemvUnit {
    static constexpr int columns = f.real() ? 64 : 8 * f.group, tiles = columns / 64;
    static constexpr int sets = f.group == 64 ? 2 : 1;         // tiles that a lane's two groups lie in
    static constexpr int steps = f.real() ? 4 : f.group / 16;  // of a group
    static constexpr int words =
        tiles * (4 * f.words4() + f.extra) + sets * (f.lane_scales() + f.lane_super()) / 4;
    // Units on their way: bytes enough for the latency of memory, and registers enough for the rest.
    static constexpr int ahead = words > 36 ? 1 : words > 16 ? 2 : f.real() ? 4 : 3;

    LaneTile<f> tile[tiles], scale[sets];

    __device__ void load(const std::byte* block, int n_tiles, int unit) {
        const TilePlace at = tile_place<f>(block, n_tiles, unit * tiles);
#pragma unroll
        for (int i = 0; i < tiles; ++i) {
#pragma unroll
            for (int j = 0; j < f.words4(); ++j)
                tile[i].codes[j] = load16(at.codes + i * f.tile_bytes() + j * 512);
            load_words<4 * f.extra>(at.extra + i * f.tile_bytes(), tile[i].extra);
        }
        if constexpr (!f.real()) {
            const int first = lane() % 4 * tiles / 4;  // the tile of group 2t
#pragma unroll
            for (int i = 0; i < sets; ++i) {
                load_words<f.lane_scales()>(at.scales + (first + i) * f.tile_bytes(), scale[i].scales);
                load_words<f.lane_super()>(at.supers + (at.tile + first + i) / 4 * (8 * f.lane_super()),
                                           scale[i].super);
            }
        }
    }

    // Of the four groups of a tile the two that are the lane's, to the front; once the unit is there.
    __device__ void take_groups() {
        if constexpr (f.group == 16) {
            constexpr int kinds = f.min ? 4 : 2;
            const int upper = lane() % 2;
#pragma unroll
            for (int i = 0; i < kinds; ++i)
                if constexpr (f.factor())
                    scale[0].scales[i] >>= 16 * upper;
                else
                    scale[0].scales[2 * i] = upper ? scale[0].scales[2 * i + 1] : scale[0].scales[2 * i];
        }
    }
};

// The scale (which = 0) or minimum (1) of the lane's group 2t + `side`, of row g + 8 half.
template <TileFormat f>
__device__ float gemv_scale(const GemvUnit<f>& u, int half, int side, int which) {
    constexpr bool apart = GemvUnit<f>::sets == 2;
    return exact_scale_of(u.scale[apart ? side : 0], half, apart ? 0 : side, which);
}

// Two of the products' operands that a lane has of x, per step of its group.
template <TileFormat f>
struct GemvColumns {
    uint32_t b[GemvUnit<f>::steps][2];

    // From x as Activations<1> has it: group g of the unit, or the tile itself where there are no groups.
    __device__ GemvColumns(const std::byte* x, int unit) {
        const int t = lane() % 4, g = lane() / 4;
        const std::byte* const at = x + unit * (2 * GemvUnit<f>::columns) + t * 16;
        if constexpr (f.group == 16) {
            const Words2 w = *reinterpret_cast<const Words2*>(at + g / 2 * 64 + g % 2 * 8);
            b[0][0] = w.w[0], b[0][1] = w.w[1];
        } else {
            constexpr int turns = GemvUnit<f>::steps / 2;
            const int first = f.real() ? 0 : g * turns;
#pragma unroll
            for (int i = 0; i < turns; ++i) {
                const Words4 w = *reinterpret_cast<const Words4*>(at + (first + i) * 64);
#pragma unroll
                for (int j = 0; j < 4; ++j) b[2 * i + j / 2][j % 2] = w.w[j];
            }
        }
    }
};

// A warp's sums of a row block, and what they become: those of rows g and g + 8 in every lane.
template <TileFormat f>
class GemvSums {
  public:
    __device__ void add(const GemvUnit<f>& u, const GemvColumns<f>& x, uint32_t table) {
        if constexpr (f.real()) {
#pragma unroll
            for (int s = 0; s < 4; ++s) mma_f16(values_[s % 2], u.tile[0].codes[s].w, x.b[s]);
        } else {
            add_groups(u, x, table);
        }
    }
    // What x was multiplied by since the last time is taken back.
    __device__ void scale(float inverse) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if constexpr (f.real()) {
                const float sum = values_[0][2 * half] + values_[1][2 * half];
                total_[half] = fused(sum, inverse, total_[half]);
                values_[0][2 * half] = values_[1][2 * half] = 0;
            } else {
                total_[half] = fused(sums_[half], inverse, total_[half]);
                sums_[half] = 0;
            }
        }
    }
    __device__ float sum(int half) const {
        if constexpr (f.real()) return total_[half];
        const float s = total_[half] + shuffle_xor(total_[half], 1);
        return s + shuffle_xor(s, 2);
    }

  private:
    using Unit = GemvUnit<f>;

    __device__ void add_groups(const Unit& u, const GemvColumns<f>& x, uint32_t table) {
        const int t = lane() % 4;
        float mine[4] = {};  // as d[4]: the columns of this lane
#pragma unroll
        for (int group = 0; group < 8; ++group) {
            float d[4] = {};
#pragma unroll
            for (int s = 0; s < Unit::steps; ++s) {
                const int step = group * Unit::steps + s;
                uint32_t a[4];
                codes_of(u.tile[step / 4], step % 4, table, a);
                mma_f16(d, a, x.b[s]);
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int i = 2 * half + group % 2;
                mine[i] = t == group / 2 ? d[i] : mine[i];
            }
        }
        // What x sums up to in each group: the product with ones has it in every row.
        float of_x[4] = {};
        if constexpr (f.min || f.zero != 0) {
            constexpr uint32_t ones[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
#pragma unroll
            for (int s = 0; s < Unit::steps; ++s) mma_f16(of_x, ones, x.b[s]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                constexpr float unit = 1.0f / (1 << 24);  // of codes (tiles.h)
                float codes = mine[2 * half + side];
                if constexpr (f.zero != 0)
                    codes = fused(of_x[side], -unit * static_cast<float>(zero_code<f>(half)), codes);
                sums_[half] = fused(codes, gemv_scale(u, half, side, 0), sums_[half]);
                if constexpr (f.min)
                    sums_[half] = fused(of_x[side], gemv_scale(u, half, side, 1), sums_[half]);
            }
    }

    float total_[2] = {}, sums_[2] = {};
    float values_[2][4] = {};
};

// x as a warp has it, of its share of the columns alone: in f16 times a power of two that is each launch
// unit's own, and what takes that back.
struct WarpRow {
    std::byte* values;
    float* inverse;
};

// What a warp does with its units of a row block (RowBlockStream): sums of the row blocks go to `partial`, 16
// floats each, `step` floats apart.
template <TileFormat f>
struct GemvWork {
    const WarpRow x;
    const uint32_t table;
    float* partial;
    const int step, per_unit;  // units of the format in one of the launch
    const int64_t k;

    GemvSums<f> sums{};
    float factor[2] = {};
    int of_launch = 0;

    __device__ void begin(const std::byte* block) {
        for (int half = 0; half < 2; ++half) factor[half] = row_factor<f>(block, k, lane() / 4 + 8 * half);
    }
    __device__ void add(GemvUnit<f>& u, int unit) {
        u.take_groups();
        sums.add(u, GemvColumns<f>(x.values, unit), table);
    }
    __device__ void added(int units) {
        if ((units & (per_unit - 1)) == 0) sums.scale(x.inverse[of_launch++]);
    }
    __device__ void end() {
        for (int half = 0; half < 2; ++half) {
            const float sum = sums.sum(half) * factor[half];
            if (lane() % 4 == 0) partial[lane() / 4 + 8 * half] = sum;
        }
        of_launch = 0, partial += step, sums = GemvSums<f>{};
    }
    __device__ void none() {
        if (lane() < 16) partial[lane()] = 0;
        partial += step;
    }
};
