// The product of one row: what a warp makes of row blocks of one format.
// Codes are multiplied as they are; scales come after, so a weight takes about one instruction.
//
// A product of m16n8k16 with one row of x has seven columns to spare. Here column n is the columns' group n
// of eight (a unit), so that the sums of eight groups lie side by side and a lane scales two of them, in f32,
// once per unit. What a group's product leaves in the other columns is not looked at.

#include "ggml/cuda/matmul_units.inl"

// What a lane reads of a unit: codes of all its tiles, and the scales of groups 2t and 2t + 1.
template <TileFormat f>
struct GemvUnit : UnitShape<f> {
    using UnitShape<f>::tiles;
    static constexpr int sets = f.group == 64 ? 2 : 1;  // tiles that a lane's two groups lie in
    static constexpr int words =
        tiles * (4 * f.words4() + f.extra) + sets * (f.lane_scales() + f.lane_super()) / 4;
    // Units on their way: bytes enough for the latency of memory, and registers enough for the rest.
    static constexpr int ahead = words > 32 ? 1 : words > 16 ? 2 : f.real() ? 4 : 3;

    LaneTile<f> tile[tiles], scale[sets];

    // The tile of group 2t.
    __device__ static int first_scales() { return f.real() ? 0 : lane() % 4 * tiles / 4; }
    __device__ void load(const UnitPlace<f>& place, const LaneParts<f>& parts) {
#pragma unroll
        for (int i = 0; i <= tiles; ++i) load_part(place, parts, i);
    }
    // The codes of tile i; with `tiles` the scales.
    __device__ void load_part(const UnitPlace<f>& place, const LaneParts<f>& parts, int i) {
        if (i < tiles) return this->load_codes(place, parts, i, tile[i]);
        if constexpr (!f.real())
#pragma unroll
            for (int j = 0; j < sets; ++j) {
                this->load_scales(place, parts, j, scale[j]);
                this->load_supers(place, first_scales() + j, scale[j]);
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
__device__ float gemv_scale(const GemvUnit<f>& u, int half, int side, int which,
                            const ByteFronts<f>& fronts) {
    constexpr bool apart = GemvUnit<f>::sets == 2;
    return exact_scale_of(u.scale[apart ? side : 0], half, apart ? 0 : side, which, fronts.of[which]);
}

// A warp's sums of a row block, and what they become: those of rows g and g + 8 in every lane.
template <TileFormat f>
class GemvSums {
  public:
    // `inverse` takes back what the unit of x was multiplied by.
    template <class Refill>
    __device__ void add(GemvUnit<f>& u, const UnitColumns<f.group>& x, uint32_t table,
                        const ByteFronts<f>& fronts, float inverse, const Refill& refill) {
        float sums[2] = {};
        if constexpr (f.real()) {
            float d[2][4] = {};
#pragma unroll
            for (int s = 0; s < 4; ++s) mma_f16(d[s % 2], u.tile[0].codes[s].w, x.b[s]);
            refill(u, 0);
            for (int half = 0; half < 2; ++half) sums[half] = d[0][2 * half] + d[1][2 * half];
        } else {
            add_groups(u, x, table, fronts, sums, refill);
        }
        for (int half = 0; half < 2; ++half) total_[half] = fused(sums[half], inverse, total_[half]);
    }
    __device__ float sum(int half) const {
        if constexpr (f.real()) return total_[half];
        const float s = total_[half] + shuffle_xor(total_[half], 1);
        return s + shuffle_xor(s, 2);
    }

  private:
    using Unit = GemvUnit<f>;

    template <class Refill>
    __device__ static void add_groups(Unit& u, const UnitColumns<f.group>& x, uint32_t table,
                                      const ByteFronts<f>& fronts, float (&sums)[2], const Refill& refill) {
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
                if (step % 4 == 3) refill(u, step / 4);
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int i = 2 * half + group % 2;
                mine[i] = t == group / 2 ? d[i] : mine[i];
            }
        }
        float of_x[2] = {};
        if constexpr (sums_x(f)) x.sum(of_x);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int side = 0; side < 2; ++side)
                sums[half] =
                    add_scaled<f>(sums[half], mine[2 * half + side], of_x[side], half,
                                  [&](int which) { return gemv_scale(u, half, side, which, fronts); });
        refill(u, Unit::tiles);
    }

    float total_[2] = {};
};

// What a warp does with its units of a row block (RowBlockStream): sums of the row blocks go to `partial`, 16
// floats each, `step` floats apart.
template <TileFormat f>
struct GemvWork {
    const SharedRow x;
    const uint32_t table;
    const ByteFronts<f> fronts;
    float* partial;
    const int step, in_launch_unit;  // bits of the number of units in one of the launch

    GemvSums<f> sums{};

    template <class Refill>
    __device__ void add(GemvUnit<f>& u, int unit, const Refill& refill) {
        u.take_groups();
        sums.add(u, UnitColumns<f.group>(x.values, unit), table, fronts, x.inverse[unit >> in_launch_unit],
                 refill);
    }
    __device__ void end() {
        for (int half = 0; half < 2; ++half) {
            const float sum = sums.sum(half);
            if (lane() % 4 == 0) partial[lane() / 4 + 8 * half] = sum;
        }
        partial += step, sums = GemvSums<f>{};
    }
    __device__ void none() {
        if (lane() < 16) partial[lane()] = 0;
        partial += step;
    }
};

// The thread block's part of a product by weights of any of the formats `codes`; it is one of a group. wait()
// returns once x is there.
template <uint32_t... codes, class Wait>
__device__ void gemv_product(const RowBlockArgs& a, const BlockGroup& group, const Wait& wait) {
    constexpr int unit_bits = most_unit_bits<codes...>;
    std::byte* shared = shared_memory() + a.table_bytes();
    auto* const sums = reinterpret_cast<float*>(shared);  // [slot][split][16]
    shared += (a.slots << a.split_bits) * 64;
    auto* const squares = reinterpret_cast<float*>(shared);  // of each warp's share
    shared += block_warps * sizeof(float);

    const int i16 = thread_index() % 16;
    const WarpShare share(a, a.split_bits);
    const SharedRow row{shared + (a.units() + 3) / 4 * 16, reinterpret_cast<float*>(shared), 2 << unit_bits};
    ResultEnd end;  // the first results' comes while the weights do
    const auto ready = [&] {
        const float* residual = nullptr;
        if (thread_index() < 16 * a.slots) {
            const RowBlockPlace at(a, group, thread_index() / 16);
            if (at.which >= 0 && 16 * at.block + i16 < a.segment[at.which].rows)
                residual = end.take_constants(a, at, i16, group.row);
        }
        wait();
        if (residual) end.residual = *residual;
        const WarpShare own(a, block_warp_bits);
        prepare_units<unit_bits>(a, own, a.x.row(group.row) + group.x_col, row.from(own.first), squares);
        sync_block();
    };
    uint32_t table = 0;
    if (a.table_used) table = fill_table(a.table);
    with_group_format<codes...>(a, group, [&]<TileFormat f>() {
        constexpr int bits = unit_bits - cuda::unit_bits(f);
        const int mine = warp_index() >> a.split_bits;
        // Where formats are mixed most instructions are new to the multiprocessor, and fetching them takes
        // longer than running them: so they are few.
        constexpr int ahead = sizeof...(codes) == 1 ? GemvUnit<f>::ahead : 1;
        RowBlockStream<GemvUnit<f>, ahead> stream(WarpBlocks(a, group, mine), group.turns(a, mine),
                                                  share.first << bits, share.units << bits, a.x.cols);
        ready();
        stream.run(GemvWork<f>{row.from(share.first), table, ByteFronts<f>(a.zero), sums + warp_index() * 16,
                               16 * block_warps, bits});
    });
    sync_block();

    const float factor = units_factor(a, squares);
    if (block_x() == 0) keep_normed(a, group.row, factor);
    for (int i = thread_index(); i < 16 * a.slots; i += row_block_threads) {
        const RowBlockPlace place(a, group, i / 16);
        if (place.which < 0 || 16 * place.block + i16 >= a.segment[place.which].rows) continue;
        if (i != thread_index()) end = ResultEnd(a, place, i16, group.row);
        end.store(a, place, i / 16, i16, group.row, [&](int slot) {
            return sum_of_splits(a, sums + (slot << a.split_bits) * 16 + i16, 16) * factor;
        });
    }
}

// What the launch asks of a card for it.
size_t gemv_shared_bytes(const RowBlockArgs& a) {
    const int64_t units = a.units();
    return static_cast<size_t>(a.table_bytes()) + (static_cast<size_t>(a.slots) << a.split_bits) * 64 +
           block_warps * sizeof(float) +
           static_cast<size_t>(round_up(units, int64_t{4}) * 4 + units * (2 << a.unit_bits));
}
