// The product of two to eight rows: what a warp makes of row blocks of one format.
// Column n of a product is row n of x; the arithmetic of each is that of one row.

#include "ggml/cuda/matmul_units.inl"

// What a lane reads of a unit: codes and scales of all its tiles.
template <TileFormat f>
struct FewUnit : UnitShape<f> {
    using UnitShape<f>::tiles;
    static constexpr int supers = tiles < 4 ? 1 : tiles / 4;
    static constexpr int words =
        tiles * (4 * f.words4() + f.extra + f.lane_scales() / 4) + supers * f.lane_super() / 4;
    // Units on their way, of which each tile is replaced as soon as it is used: bytes enough for the latency
    // of memory, and registers enough for the sums.
    static constexpr int ahead = words > 17 ? 1 : words > 16 ? 2 : 3;

    LaneTile<f> tile[tiles];  // of four the first has the factors of 256 columns

    __device__ static int first_scales() { return 0; }
    __device__ void load(const UnitPlace<f>& place, const LaneParts<f>& parts) {
#pragma unroll
        for (int i = 0; i < tiles; ++i) load_part(place, parts, i);
    }
    // Tile i, and with the first of four the factors.
    __device__ void load_part(const UnitPlace<f>& place, const LaneParts<f>& parts, int i) {
        this->load_codes(place, parts, i, tile[i]);
        this->load_scales(place, parts, i, tile[i]);
        if (i % 4 == 0) this->load_supers(place, i, tile[i]);
    }
};

// The rows of x as the launch before made them ready: as Activations<8>, with a power of two for each launch
// unit of each row, the factors of the rows' norms, and what groups of x sum up to: of 16, 32 and 64 columns,
// where formats need it.
struct FewRows {
    std::byte* values;
    float *inverse, *factor;  // [launch unit][8], [8]
    float* sums[3];           // [group][8]
    static constexpr int of_group(int columns) { return columns / 32; }
};

__device__ inline void read_two(const float* from, float (&v)[2]) {
    const Words2 w = *reinterpret_cast<const Words2*>(from);
    for (int i = 0; i < 2; ++i) v[i] = bits_float(w.w[i]);
}

// What a lane has of a tile of x, as operands of four steps.
struct FewColumns {
    uint32_t b[4][2];
    __device__ explicit FewColumns(const std::byte* x) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const Words4 w = *reinterpret_cast<const Words4*>(x + half * Activations<8>::half_bytes);
#pragma unroll
            for (int i = 0; i < 4; ++i) b[2 * half + i / 2][i % 2] = w.w[i];
        }
    }
};

// A warp's sums of a row block: four of each result, as one row has them in four lanes.
template <TileFormat f>
class FewSums {
  public:
    // The lane's share of x: of the unit's first tile, of what its groups sum up to, and its inverse.
    template <class Refill>
    __device__ void add(FewUnit<f>& u, const std::byte* x, const float* x_sums, const float (&inverse)[2],
                        uint32_t table, const ByteFronts<f>& fronts, const Refill& refill) {
        if constexpr (f.real()) {
            const FewColumns columns(x);
            float d[2][4] = {};
#pragma unroll
            for (int s = 0; s < 4; ++s) mma_f16(d[s % 2], u.tile[0].codes[s].w, columns.b[s]);
            refill(u, 0);
#pragma unroll
            for (int j = 0; j < 4; ++j) total_[0][j] = fused(d[0][j] + d[1][j], inverse[j % 2], total_[0][j]);
        } else {
            float sums[4];
            uint32_t super[2];
#pragma unroll
            for (int i = 0; i < FewUnit<f>::tiles; ++i) {
                if (i % 4 == 0)
                    for (int j = 0; j < 2; ++j) super[j] = u.tile[i].super[j];
                add_tile(u.tile[i], super, i, FewColumns(x + i * Activations<8>::tile_bytes), x_sums, inverse,
                         table, fronts, sums);
                refill(u, i);
            }
        }
    }
    __device__ float sum(int j) const {
        if constexpr (f.real()) return total_[0][j];
        return (total_[0][j] + total_[1][j]) + (total_[2][j] + total_[3][j]);
    }

  private:
    static constexpr int steps = FewUnit<f>::steps;

    // The groups of tile `i` of a unit; `sums`: of those before it, where two tiles have the groups of a
    // total.
    __device__ void add_tile(const LaneTile<f>& tile, const uint32_t (&super)[2], int i,
                             const FewColumns& columns, const float* x_sums, const float (&inverse)[2],
                             uint32_t table, const ByteFronts<f>& fronts, float (&sums)[4]) {
        LaneTile<f> scales;
        for (int j = 0; j < 4; ++j) scales.scales[j] = tile.scales[j];
        for (int j = 0; j < 2; ++j) scales.super[j] = super[j];
#pragma unroll
        for (int group = 0; group < f.groups(); ++group) {
            const int of_unit = i * f.groups() + group;
            float d[4] = {}, of_x[2] = {};
            if constexpr (sums_x(f)) read_two(x_sums + of_unit * 8, of_x);
#pragma unroll
            for (int s = group * steps; s < (group + 1) * steps; ++s) {
                uint32_t a[4];
                codes_of(tile, s, table, a);
                mma_f16(d, a, columns.b[s]);
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float before = of_unit % 2 == 0 ? 0 : sums[j];
                sums[j] = add_scaled<f>(before, d[j], of_x[j % 2], j / 2, [&](int which) {
                    return exact_scale_of(scales, j / 2, group, which, fronts.of[which]);
                });
                float& total = total_[of_unit / 2][j];
                if (of_unit % 2 != 0) total = fused(sums[j], inverse[j % 2], total);
            }
        }
    }

    float total_[f.real() ? 1 : 4][4] = {};
};

// What a warp does with its units of a row block (RowBlockStream): its fragments of the row blocks' sums, 16
// bytes per lane, go to `partial`, `step` of them apart.
template <TileFormat f>
struct FewWork {
    const FewRows rows;
    // The lane's share of the warp's columns: bytes from the first tile, launch unit and group.
    const int x, inverse, x_sums;
    const uint32_t table;
    const ByteFronts<f> fronts;
    Words4* partial;
    const int step, in_launch_unit;  // bits of the number of units in one of the launch

    FewSums<f> sums{};

    template <class Refill>
    __device__ void add(FewUnit<f>& u, int unit, const Refill& refill) {
        float inv[2];
        read_two(floats(rows.inverse, inverse + (unit >> in_launch_unit) * 32), inv);
        const float* of_groups = nullptr;
        if constexpr (sums_x(f))
            of_groups = floats(rows.sums[FewRows::of_group(f.group)], x_sums + unit * 256);
        sums.add(u, rows.values + (x + unit * (FewUnit<f>::tiles * Activations<8>::tile_bytes)), of_groups,
                 inv, table, fronts, refill);
    }
    __device__ void end() {
        float d[4];
        for (int j = 0; j < 4; ++j) d[j] = sums.sum(j);
        leave(words_of(d));
        sums = FewSums<f>{};
    }
    __device__ void none() { leave({}); }
    __device__ static const float* floats(const float* first, int bytes) {
        return reinterpret_cast<const float*>(reinterpret_cast<const std::byte*>(first) + bytes);
    }
    __device__ void leave(const Words4& w) {
        partial[lane()] = w;
        partial += step;
    }
};
