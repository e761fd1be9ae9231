// Products whose scales come after: codes are multiplied as they are, and a group's sum is scaled in f32. One
// row (matmul_gemv.cu) and some (matmul_few.cu) have this arithmetic in common, to the last bit.
//
// A unit is eight groups of columns, or 64 where there are none. Of its groups 2t and 2t + 1 the sums are
// added to each other, then to sum t of four, and these at the end as (0 + 1) + (2 + 3). x is f16 times a
// power of two of its own for each launch unit, which is one of the format's or some.

template <TileFormat f>
struct UnitShape {
    using Place = UnitPlace<f>;
    using Parts = LaneParts<f>;
    static constexpr int tiles = Place::tiles;
    static constexpr int steps = f.real() ? 4 : f.group / 16;  // of a group, or of the 64 columns

    // The lane's codes of a tile.
    __device__ static void load_codes(const Place& place, const Parts& parts, int tile, LaneTile<f>& to) {
#pragma unroll
        for (int j = 0; j < f.words4(); ++j)
            to.codes[j] = load16(place.codes + tile * f.tile_bytes() + j * 512);
        load_words<4 * f.extra>(place.codes + parts.extra + tile * f.tile_bytes(), to.extra);
    }
    // The scales of its rows, and their factors.
    __device__ static void load_scales(const Place& place, const Parts& parts, int tile, LaneTile<f>& to) {
        load_words<f.lane_scales()>(place.codes + parts.scales + tile * f.tile_bytes(), to.scales);
    }
    __device__ static void load_supers(const Place& place, int tile, LaneTile<f>& to) {
        load_words<f.lane_super()>(place.supers + (place.unit * tiles + tile) / 4 * (8 * f.lane_super()),
                                   to.super);
    }
};

// Two of the products' operands that a lane has of x, per step of its group.
template <int group>
struct UnitColumns {
    static constexpr int steps = group ? group / 16 : 4;
    uint32_t b[steps][2];

    // From x as Activations<1> has it: group g of the unit, or 64 columns themselves where there are no
    // groups.
    __device__ UnitColumns(const std::byte* x, int unit) {
        const int t = lane() % 4, g = lane() / 4;
        const std::byte* const at = x + unit * (2 * (group ? 8 * group : 64)) + t * 16;
        if constexpr (group == 16) {
            const Words2 w = *reinterpret_cast<const Words2*>(at + g / 2 * 64 + g % 2 * 8);
            b[0][0] = w.w[0], b[0][1] = w.w[1];
        } else {
            constexpr int turns = steps / 2;
            const int first = group ? g * turns : 0;
#pragma unroll
            for (int i = 0; i < turns; ++i) {
                const Words4 w = *reinterpret_cast<const Words4*>(at + (first + i) * 64);
#pragma unroll
                for (int j = 0; j < 4; ++j) b[2 * i + j / 2][j % 2] = w.w[j];
            }
        }
    }

    // What x sums up to in the lane's groups 2t and 2t + 1: products with ones. Of two steps what a lane has
    // is an operand as it is, where group g is rows g and g + 8.
    __device__ void sum(float (&of)[2]) const {
        constexpr uint32_t one = 0x3c003c00, ones[4] = {one, one, one, one};
        float d[4] = {};
        if constexpr (steps == 1) {
            mma_f16(d, ones, b[0]);
            of[0] = d[0], of[1] = d[1];
        } else {
#pragma unroll
            for (int s = 0; s < steps; s += 2) {
                const uint32_t rows[4] = {b[s][0], b[s][1], b[s + 1][0], b[s + 1][1]};
                mma_f16(d, rows, {one, one});
            }
            for (int side = 0; side < 2; ++side) of[side] = shuffle(d[0] + d[2], (lane() % 4 * 2 + side) * 4);
        }
    }
};

// x in shared memory, from one of the launch's units on.
struct SharedRow {
    std::byte* values;
    float* inverse;
    int unit_bytes;
    __device__ SharedRow from(int unit) const {
        return {values + unit * unit_bytes, inverse + unit, unit_bytes};
    }
    __device__ void put(int unit, int four, const Words2& w) const {
        Activations<1>::Column{values + unit * unit_bytes}.put(four, w);
    }
    __device__ void scaled_by(int unit, float inv) const { inverse[unit] = inv; }
};

// Formats that need what x sums up to.
constexpr bool sums_x(TileFormat f) { return f.min || f.zero != 0; }

// byte_front() of scales and minima, kept: an instruction has room for one constant, and beside these there
// is another. `zero` is 0, which the compiler does not know.
template <TileFormat f>
struct ByteFronts {
    uint32_t of[2];
    __device__ explicit ByteFronts(uint32_t zero)
        : of{kept(byte_front<f>(0) | zero), f.min ? kept(byte_front<f>(1) | zero) : 0} {}
};

// Adds a group: `codes` and `of_x` are what x times its codes and x itself sum up to, in row g + 8 half;
// scale(which) as exact_scale_of() has it.
template <TileFormat f, class Scale>
__device__ float add_scaled(float sum, float codes, float of_x, int half, const Scale& scale) {
    constexpr float unit = 1.0f / (1 << 24);  // of codes (tiles.h)
    if constexpr (f.zero != 0) codes = fused(of_x, -unit * static_cast<float>(zero_code<f>(half)), codes);
    sum = fused(codes, scale(0), sum);
    if constexpr (f.min) sum = fused(of_x, scale(1), sum);
    return sum;
}

// Columns that a warp makes ready at once, a four per lane.
constexpr int warp_columns = 128;

// Whether such products can be made, which read four values at a time: of whole units, or of whole tiles, if
// they are enough for a unit and all weights have the same (RowBlockArgs::shift).
bool takes_units(const ProductArgs& a, std::span<const Type> types) {
    const auto aligned = [](const View& v) {
        return (reinterpret_cast<uintptr_t>(v.data) | static_cast<uintptr_t>(v.stride)) % sizeof(Words4) == 0;
    };
    const TileFormat first = tiles_of(types[0]);
    const bool whole = a.x.cols % 256 == 0 && std::ranges::all_of(types, [&](Type t) {
                           return a.x.cols % (1 << launch_unit_bits(tiles_of(t))) == 0;
                       });
    const bool alike = std::ranges::all_of(types, [&](Type t) { return tiles_of(t) == first; });
    const bool tiles = a.x.cols % 64 == 0 && a.x.cols >= 1 << launch_unit_bits(first) && !first.factor();
    return (whole || (alike && tiles)) && aligned(a.x) && (!a.norm.on || aligned(a.norm.weight));
}

// Makes the warp's share of a row ready, n * 128 columns of a launch unit, each by itself. A norm's weight is
// multiplied with; its factor is the whole row's, and comes at the end. Returns the sum of the squares.
// to.put(unit of the share, four of it, values), to.scaled_by(unit, its inverse).
template <int n, bool normed, class To>
__device__ float prepare_share(const RowBlockArgs& a, const WarpShare& share, const float* row,
                               const To& to) {
    // Nothing goes on before the row is there, so units are made ready side by side.
    constexpr int at_once = normed ? 4 : 8, units = at_once / n;
    const auto column = [&](int unit, int j) {
        const int u = share.first + (unit < share.units ? unit : 0);
        return (u * n + j) * warp_columns + 4 * lane() - a.counted_before(u);
    };
    float squares = 0;
    for (int first = 0; first < share.units; first += units) {
        Words4 x[units][n], w[units][n];
#pragma unroll
        for (int u = 0; u < units; ++u)
#pragma unroll
            for (int j = 0; j < n; ++j) {
                x[u][j] = four_words(row, column(first + u, j));
                if constexpr (normed) w[u][j] = four_words(a.norm.weight.row(0), column(first + u, j));
            }
        uint32_t most[units];
#pragma unroll
        for (int u = 0; u < units; ++u) {
            const int before =  // columns that are zero: all of a unit that is not there
                first + u < share.units ? a.counted_before(share.first + first + u) : n * warp_columns;
            float largest = 0;
#pragma unroll
            for (int j = 0; j < n; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float v = j * warp_columns + 4 * lane() < before ? 0 : bits_float(x[u][j].w[i]);
                    squares = fused(v, v, squares);
                    if constexpr (normed) v *= bits_float(w[u][j].w[i]);
                    largest = fmaxf(largest, fabsf(v));
                    x[u][j].w[i] = float_bits(v);
                }
            most[u] = float_bits(largest);
        }
#pragma unroll
        for (int u = 0; u < units; ++u) most[u] = warp_max(most[u]);
#pragma unroll
        for (int u = 0; u < units; ++u) {
            if (first + u >= share.units) break;
            const float scale = range_factor(bits_float(most[u]));
#pragma unroll
            for (int j = 0; j < n; ++j) {
                float v[4];
                for (int i = 0; i < 4; ++i) v[i] = bits_float(x[u][j].w[i]) * scale;
                to.put(first + u, j * 32 + lane(), {{half2(v[0], v[1]), half2(v[2], v[3])}});
            }
            if (lane() == 0) to.scaled_by(first + u, inverse_of_power(scale));
        }
    }
    return squares;
}

// The sum of the squares, if the row is normed, goes to `squares`, which has a place for every warp.
template <int unit_bits, class To>
__device__ void prepare_units(const RowBlockArgs& a, const WarpShare& share, const float* row, const To& to,
                              float* squares) {
    constexpr int n = (1 << unit_bits) / warp_columns;
    float sum = a.norm.on && a.norm.weight ? prepare_share<n, true>(a, share, row, to)
                                           : prepare_share<n, false>(a, share, row, to);
    if (a.norm.on) sum = warp_sum(sum);
    if (lane() == 0) squares[warp_index()] = sum;
}

// The factor of the row's norm, or 1, from the warps' squares.
__device__ inline float units_factor(const RowBlockArgs& a, const float* squares) {
    if (!a.norm.on) return 1;
    float sum = 0;
    for (int p = 0; p < block_warps; ++p) sum += squares[p];
    return 1 / sqrtf(sum / static_cast<float>(a.x.cols) + a.norm.eps);
}

// The row of a norm where it is wanted besides.
__device__ inline void keep_normed(const RowBlockArgs& a, int64_t row, float factor) {
    if (!a.norm.on || !a.norm.out) return;
    for (int i = thread_index(); i < a.x.cols; i += row_block_threads) {
        const float v = a.x.row(row)[i] * factor;
        a.norm.out.row(row)[i] = a.norm.weight ? v * a.norm.weight.row(0)[i] : v;
    }
}
