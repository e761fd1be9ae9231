// Products of tiles with columns of activations: what matmul.cu and moe_matmul.cu have in common.
// A warp multiplies 16 weight rows by up to 8 n columns, 64 columns of the weights at a time; codes enter the
// tensor cores as exact f16 integers and scales are applied to the f32 sums of their group.

// Activations as fragments want them. Columns of the product (rows of x) lie in groups of `width`: 8, or 1
// where a row is alone. A group is, for each tile of 64 values,
//   [half of the tile][column][t][step of the half][4 values]
// in f16 times a power of two that is the column's own: a lane reads two steps at once, a warp 512 bytes in a
// row. `sums` holds the sum of each 16 values, for formats with minima: [group][tile][column][step].
template <int width>
struct Activations {
    std::byte* values;
    float* sums;
    float* inverse;  // of the column's power of two
    int64_t tiles;

    static constexpr int value_bytes = 128,
                         half_bytes = 64 * width;  // of a column and tile; of half a group's
    static constexpr int tile_bytes = width * value_bytes, tile_sums = width * 4;
    static constexpr bool has_sums = true;

    __device__ std::byte* values_of(int64_t column) const {
        return values + column / width * tiles * tile_bytes + column % width * (value_bytes / 2);
    }
    __device__ float* sums_of(int64_t column) const {
        return sums + column / width * tiles * tile_sums + column % width * 4;
    }

    // Where prepare_column() leaves a column: four values, and the sum of sixteen, from 4 `unit` on.
    struct Column {
        std::byte* values;
        float* sums;
        __device__ void put(int unit, Words2 w) const {
            const int tile = unit / 16, step = unit / 4 % 4;
            *reinterpret_cast<Words2*>(values + tile * tile_bytes + step / 2 * half_bytes + unit % 4 * 16 +
                                       step % 2 * 8) = w;
        }
        __device__ void put_sum(int unit, float sum) const {
            sums[unit / 16 * tile_sums + unit / 4 % 4] = sum;
        }
    };
    __device__ Column column(int64_t c) const { return {values_of(c), sums_of(c)}; }
};

// Memory cut into its parts.
template <int width>
__host__ __device__ inline Activations<width> arranged(std::byte* memory, int64_t columns, int64_t k) {
    using A = Activations<width>;
    const int64_t tiles = (k + 63) / 64, groups = (columns + width - 1) / width;
    auto* const sums = reinterpret_cast<float*>(memory + groups * tiles * A::tile_bytes);
    return {memory, sums, sums + groups * tiles * A::tile_sums, tiles};
}

template <int width>
constexpr size_t arranged_bytes(int64_t columns, int64_t k) {
    using A = Activations<width>;
    const int64_t tiles = (k + 63) / 64, groups = (columns + width - 1) / width;
    return static_cast<size_t>(groups * (tiles * (A::tile_bytes + A::tile_sums * 4) + width * 4));
}

// The power of two that brings `most` to [2^14, 2^15); 1 for zero, infinities and NaNs.
__device__ inline float range_factor(float most) {
    const int exponent = static_cast<int>(float_bits(most) >> 23 & 255) - 127;
    if (exponent == 128 || most == 0) return 1;
    const int shift = 14 - (exponent > -100 ? exponent : -100);
    return bits_float(static_cast<uint32_t>(shift + 127) << 23);
}

// Whether four values from any multiple of four on can be read at once.
__device__ inline bool in_fours(const float* row, int k) {
    return k % 4 == 0 && reinterpret_cast<uintptr_t>(row) % sizeof(Words4) == 0;
}
__device__ inline Words4 four_words(const float* row, int i) {
    return *reinterpret_cast<const Words4*>(row + i);
}
// Values i .. i + 3 of a row of k; zeros behind the last.
__device__ inline void read_four(const float* row, int k, int i, float (&v)[4]) {
    for (int j = 0; j < 4; ++j) v[j] = i + j < k ? row[i + j] : 0;
}

// A row as prepare_column() reads it: four values from i on, zeros behind the last. Where it is `in_fours`, a
// thread has `at_once` fours on their way, number j of the first or a later round: load() depends on no
// condition (behind the last it reads others), for nothing is asked for under one before what was asked for
// has come.
struct PlainRow {
    static constexpr int at_once = 8;
    using Raw = Words4;
    const float* row;
    int k;
    __device__ bool in_fours() const { return cuda::in_fours(row, k); }
    __device__ Raw load(int i, int /*j*/, bool /*first*/) const { return four_words(row, i < k ? i : 0); }
    __device__ void finish(const Raw& raw, int i, float (&v)[4]) const {
        for (int j = 0; j < 4; ++j) v[j] = i < k ? bits_float(raw.w[j]) : 0;
    }
    __device__ void four(int i, float (&v)[4]) const { read_four(row, k, i, v); }
};

// Converts a row of k values for column c; called by the whole block. `partial`: shared, a float per warp.
template <class Values, class To>
__device__ void prepare_column(const Values& x, int k, const To& to, int64_t c, float* partial) {
    constexpr int at_once = Values::at_once;  // kept, if they are all
    const int units = (k + 63) / 64 * 16, per_round = at_once * block_threads();
    const bool in_fours = x.in_fours();
    float v[at_once][4];
    const auto read = [&](int first) {
        const auto column = [&](int j) { return 4 * (first + j * block_threads() + thread_index()); };
        if (in_fours) {
            typename Values::Raw raw[at_once];
#pragma unroll
            for (int j = 0; j < at_once; ++j) raw[j] = x.load(column(j), j, first == 0);
#pragma unroll
            for (int j = 0; j < at_once; ++j) x.finish(raw[j], column(j), v[j]);
        } else {
#pragma unroll
            for (int j = 0; j < at_once; ++j) x.four(column(j), v[j]);
        }
    };
    float most = 0;
    for (int first = 0; first < units; first += per_round) {
        read(first);
#pragma unroll
        for (int j = 0; j < at_once; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) most = fmaxf(most, fabsf(v[j][i]));
    }
    const float factor = range_factor(block_max(most, partial));
    const auto place = to.column(c);
    for (int first = 0; first < units; first += per_round) {
        if (units > per_round) read(first);
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
            const int u = first + j * block_threads() + thread_index();
            const Words2 w{
                {half2(v[j][0] * factor, v[j][1] * factor), half2(v[j][2] * factor, v[j][3] * factor)}};
            if constexpr (To::has_sums) {
                float sum = 0;
                for (int i = 0; i < 4; ++i)
                    sum += half_to_float(static_cast<uint16_t>(w.w[i / 2] >> (i % 2 * 16)));
                sum += shuffle_xor(sum, 1);
                sum += shuffle_xor(sum, 2);
                if (u < units && u % 4 == 0) place.put_sum(u, sum);
            }
            if (u < units) place.put(u, w);
        }
    }
    if (thread_index() == 0) to.inverse[c] = 1 / factor;
}

// What a lane reads of a tile.
template <TileFormat f>
struct LaneTile {
    Words4 codes[f.words4()];
    uint32_t extra[2];
    uint32_t scales[4];
    uint32_t super[2];
};

template <int bytes>
__device__ void load_words(const std::byte* p, uint32_t* out) {
    if constexpr (bytes == 4) {
        out[0] = load4(p);
    } else if constexpr (bytes == 8) {
        const Words2 v = load8(p);
        out[0] = v.w[0], out[1] = v.w[1];
    } else if constexpr (bytes == 16) {
        const Words4 v = load16(p);
        for (int i = 0; i < 4; ++i) out[i] = v.w[i];
    }
}

// Where the lane's parts of a tile are; those of the tiles behind it are `tile_bytes()` apart.
struct TilePlace {
    const std::byte *codes, *extra, *scales, *supers;
    int tile;
};

template <TileFormat f>
__device__ TilePlace tile_place(const std::byte* block, int tiles, int tile) {
    const std::byte* const at = block + int64_t{tile} * f.tile_bytes();
    const int l = lane(), g = l / 4;
    return {at + l * 16, at + f.extra_at() + l * 4 * f.extra, at + f.scales_at() + g * f.lane_scales(),
            block + int64_t{tiles} * f.tile_bytes() + g * f.lane_super(), tile};
}

// Reads the tile `i` behind the place.
template <TileFormat f>
__device__ void load_tile(const TilePlace& at, int i, LaneTile<f>& out) {
    const int bytes = i * f.tile_bytes();
#pragma unroll
    for (int j = 0; j < f.words4(); ++j) out.codes[j] = load16(at.codes + bytes + j * 512);
    load_words<4 * f.extra>(at.extra + bytes, out.extra);
    load_words<f.lane_scales()>(at.scales + bytes, out.scales);
    load_words<f.lane_super()>(at.supers + static_cast<uint32_t>(at.tile + i) / 4 * (8 * f.lane_super()),
                               out.super);
}

__device__ inline float half_of(const uint32_t* words, int i) {
    return half_to_float(static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
}

// Scale (which = 0) or minimum (1) of a group of the tile, of the lane's row g + 8 half.
template <TileFormat f>
__device__ float scale_of(const LaneTile<f>& t, int half, int group, int which) {
    constexpr int kinds = f.min ? 2 : 1;
    const int i = (half * kinds + which) * f.groups() + group;
    if constexpr (f.scales == ScaleKind::factor) {
        // Under the exponent of 2^23: exact, and faster than a conversion.
        const uint32_t bits = byte_perm(t.scales[i / 4] ^ 0x80808080, 0x4b000000, 0x7540 | i % 4);
        return half_of(t.super, half * kinds + which) * (bits_float(bits) - 8388736.0f);
    } else if constexpr (f.scales == ScaleKind::f32) {
        return bits_float(t.scales[i]);
    } else {
        return half_of(t.scales, i);
    }
}

constexpr uint32_t half_twice(int v) {  // an f16 integer below 2048, in both halves
    uint32_t bits = 0;
    for (int e = 10; e >= 0 && v > 0 && !bits; --e)
        if (v >> e) bits = static_cast<uint32_t>((e + 15) << 10 | ((v << (10 - e)) & 0x3ff));
    return bits | bits << 16;
}

// The lane's fragment of step s: exact f16 integers, table values, or the values themselves. A code in the
// low bits of a half under the exponent of 1024 reads as 1024 + code.
template <TileFormat f>
__device__ void fragment(const LaneTile<f>& t, int s, const uint32_t* table, uint32_t (&a)[4]) {
    constexpr uint32_t exponent = 0x64006400u, base = half_twice(1024 + f.zero);
    if constexpr (f.main == 16) {
        for (int i = 0; i < 4; ++i) a[i] = t.codes[s].w[i];
    } else if constexpr (f.main == 8) {
        for (int i = 0; i < 4; ++i)
            a[i] = half2_sub(byte_perm(t.codes[s / 2].w[s % 2 * 2 + i / 2], exponent >> 8 | exponent,
                                       i % 2 ? 0x4342 : 0x4140),
                             base);
    } else if constexpr (f.table) {
        const uint32_t w = t.codes[0].w[s];
        for (int i = 0; i < 4; ++i)
            a[i] = table[static_cast<int>(byte_perm(w, 0, 0x4440 | static_cast<uint32_t>(i))) * 32];
    } else {
        // Odd fragments stay in the upper nibble and read as 1024 + 16 code.
        const uint32_t w = t.codes[0].w[s], shifted = w >> 8;
        for (int i = 0; i < 4; ++i) {
            uint32_t h = and_or(i < 2 ? w : shifted, i % 2 ? 0x00f000f0 : 0x000f000f, exponent);
            if constexpr (f.extra != 0) {
                const int bit = f.extra == 2 ? 8 * (s % 2) + 2 * i : 4 * s + i, to = i % 2 ? 8 : 4;
                const uint32_t upper = t.extra[f.extra == 2 ? s / 2 : 0];
                const uint32_t mask = f.extra == 2 ? 0x00030003 : 0x00010001;
                h = and_or(bit < to ? upper << (to - bit) : upper >> (bit - to), mask << to, h);
            }
            a[i] = i % 2 == 0 ? half2_sub(h, base)
                              : half2_fma(h, 0x2c002c00u, half_twice(64 + f.zero) | 0x80008000u);
        }
    }
}

// Sixteen rows times n groups of eight columns, in f32: fragment d[4] of each group.
template <int n>
struct Sums {
    float d[n][4];
};

// The columns of a warp's product, for each group of eight: where the lane's share of column g of x begins,
// and the sums of columns 2t and 2t + 1. A column that is not there is any other: nobody asks for its
// results.
template <int n>
struct WarpColumns {
    const std::byte* x[n];
    const float* sums[n][2];

    // Column c of x is place(c).
    template <int width, class Place>
    __device__ WarpColumns(const Activations<width>& a, const Place& place) {
        for (int i = 0; i < n; ++i) {
            x[i] = a.values_of(place(8 * i + lane() / 4)) + lane() % 4 * 16;
            for (int c = 0; c < 2; ++c) sums[i][c] = a.sums_of(place(8 * i + lane() % 4 * 2 + c));
        }
    }
};

// Sums of x over each group of the tile, for n groups of columns; of formats with minima.
template <TileFormat f, int n>
struct GroupTotals {
    float of[n][2][f.min ? f.groups() : 1];

    // From the sums of each step of a column.
    __device__ void set(int i, int c, Words4 steps) {
        constexpr int group_steps = f.group / 16;
        for (int g = 0; g < f.groups(); ++g) {
            float total = bits_float(steps.w[g * group_steps]);
            for (int j = 1; j < group_steps; ++j) total += bits_float(steps.w[g * group_steps + j]);
            of[i][c][g] = total;
        }
    }
};

// Adds the sums of a group times its scale. With `width` 1 only column 0 counts.
template <TileFormat f, int n, int width>
__device__ void apply_scales(const LaneTile<f>& tile, int group, const GroupTotals<f, n>& totals,
                             const Sums<n>& part, Sums<n>& sums) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float scale = scale_of(tile, half, group, 0);
        const float min = f.min ? scale_of(tile, half, group, 1) : 0;
#pragma unroll
        for (int i = 0; i < n; ++i)
#pragma unroll
            for (int c = 0; c < (width == 1 ? 1 : 2); ++c) {
                float& d = sums.d[i][2 * half + c];
                d = fused(scale, part.d[i][2 * half + c], d);
                if constexpr (f.min) d = fused(min, totals.of[i][c][group], d);
            }
    }
}

// Multiplies the steps of a tile that `x` has: both halves, or one where no group spans both. Every product
// goes through here, which is why a row's bits do not depend on the kernel.
template <TileFormat f, int n, int width, int halves>
__device__ void multiply_steps(const LaneTile<f>& tile, int first_half, const uint32_t* table,
                               const Words4 (&x)[halves][n], const GroupTotals<f, n>& totals, Sums<n>& sums) {
    constexpr int group_steps = f.real() ? 2 : f.group / 16;
    static_assert(group_steps <= 2 * halves);
#pragma unroll
    for (int begin = 0; begin < 2 * halves; begin += group_steps) {
        Sums<n> part{};
#pragma unroll
        for (int s = begin; s < begin + group_steps; ++s) {
            uint32_t a[4];
            fragment(tile, 2 * first_half + s, table, a);
#pragma unroll
            for (int i = 0; i < n; ++i) {
                const uint32_t b[2] = {x[s / 2][i].w[s % 2 * 2], x[s / 2][i].w[s % 2 * 2 + 1]};
                mma_f16((f.real() ? sums : part).d[i], a, b);
            }
        }
        if constexpr (!f.real())
            apply_scales<f, n, width>(tile, (2 * first_half + begin) / group_steps, totals, part, sums);
    }
}

template <TileFormat f, int n, int width>
__device__ void multiply_tile(const LaneTile<f>& tile, int index, const uint32_t* table,
                              const WarpColumns<n>& columns, Sums<n>& sums) {
    using A = Activations<width>;
    Words4 x[2][n];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < n; ++i)
            x[half][i] = *reinterpret_cast<const Words4*>(columns.x[i] + int64_t{index} * A::tile_bytes +
                                                          half * A::half_bytes);
    GroupTotals<f, n> totals;
    if constexpr (f.min) {
#pragma unroll
        for (int i = 0; i < n; ++i)
#pragma unroll
            for (int c = 0; c < (width == 1 ? 1 : 2); ++c)
                totals.set(
                    i, c,
                    *reinterpret_cast<const Words4*>(columns.sums[i][c] + int64_t{index} * A::tile_sums));
    }
    multiply_steps<f, n, width, 2>(tile, 0, table, x, totals, sums);
}

// Values of a byte of two table codes, once for each lane, so that lookups do not collide: the first 32 KiB
// of shared memory. Returns the lane's column. Its number comes from a shuffle: knowing nothing
// about it, the compiler does not take the address of a lookup apart.
__device__ inline const uint32_t* fill_table(const TileTable& levels) {
    auto* const table = reinterpret_cast<uint32_t*>(shared_memory());
    for (int byte = warp_index(); byte < 256; byte += block_threads() / 32)
        table[byte * 32 + lane()] = half2(levels.level[byte & 15], levels.level[byte >> 4]);
    return table + shuffle(lane(), lane());
}

constexpr size_t table_bytes(TileFormat f) { return f.table ? size_t{32} << 10 : 0; }

// Tiles a warp keeps on their way: enough bytes for the latency of memory even where a multiprocessor has few
// warps, few enough for the registers beside the columns of x and their sums.
constexpr int tiles_ahead(TileFormat f, int n) {
    const int words = 4 * f.words4() + f.extra + (f.lane_scales() + f.lane_super()) / 4;
    const int most = (f.min && n == 4 ? 40 : 56 - (f.min ? 16 : 8) * (n - 1)) / words, least = n == 1 ? 4 : 2;
    return most < least ? least : most > 8 ? 8 : most;
}

// Blocks of 256 threads that a multiprocessor holds at once: what registers are dealt out for.
constexpr int resident_blocks(TileFormat f, int n) { return f.min && n == 4 ? 1 : 2; }

// The factor of row r of 16, where values have one.
template <TileFormat f>
__device__ float row_factor(const std::byte* block, int64_t k, int64_t r) {
    if constexpr (!f.real()) return 1;
    return reinterpret_cast<const float*>(block + f.supers_at(k))[r];
}

// A product's sum over the columns of the weights is cut into this many runs of tiles, summed one by one and
// then in order: by the warps of a block at once (BlockProduct) or one after the other (gemm.cu), with the
// same bits.
constexpr int runs = 8;
__host__ __device__ constexpr int64_t run_tiles(int64_t tiles) { return (tiles + runs - 1) / runs; }

// What the runs of a row block and 8 n columns leave before they are added.
constexpr size_t run_sums_bytes(int n) {
    return size_t{runs} * static_cast<size_t>(n) * 4 * 32 * sizeof(float);
}

// The block's product of one row block by 8 n columns, or by one (`width` 1). The result is left in `shared`
// (runs x n x 4 x 32 floats), to be read with result() after the barrier at the end.
template <TileFormat f, int n, int width = 8>
class BlockProduct {
  public:
    static constexpr size_t shared_bytes = run_sums_bytes(n);

    // Starts reading before the activations are there. `warp`: the number of this one among the product's.
    __device__ BlockProduct(const std::byte* block, int64_t k, int warp = warp_index())
        : block_(block),
          warp_(warp),
          tiles_(static_cast<int>(TileFormat::tiles(k))),
          first_(warp * static_cast<int>(run_tiles(tiles_))),
          last_(first_ + static_cast<int>(run_tiles(tiles_))) {
        last_ = last_ < tiles_ ? last_ : tiles_;
        load(block, 0);
    }

    // Adds the warp's run. `following`: the row block of the next call, which begins to be read as this one
    // ends; or null.
    __device__ void multiply(const uint32_t* table, const WarpColumns<n>& columns, Sums<n>& sums,
                             const std::byte* following) {
        int left = 0;  // tiles of the last turn
        for (int next = first_; next < last_; next += ahead) {
            // What takes the place of the tiles: those behind them, or the beginning of the next row block.
            left = last_ - next;
            const bool same = left > ahead;
            const TilePlace from =
                tile_place<f>(same ? block_ : following, tiles_, same ? next + ahead : first_);
            const int replaced = same ? left - ahead : following ? left : 0;
#pragma unroll
            for (int i = 0; i < ahead; ++i) {
                if (i >= left) break;
                multiply_tile<f, n, width>(ahead_[i], next + i, table, columns, sums);
                if (i < replaced) load_tile<f>(from, i, ahead_[i]);
            }
        }
        if (following && left < ahead) load(following, left);
        block_ = following;
    }

    // All warps' runs, into `shared`.
    __device__ void run(const uint32_t* table, const WarpColumns<n>& columns, float* shared,
                        const std::byte* following = nullptr) {
        Sums<n> sums{};
        multiply(table, columns, sums, following);
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < 4; ++j) shared[((warp_ * n + i) * 4 + j) * 32 + lane()] = sums.d[i][j];
        sync_block();
    }

    // Result of row r of 16 and column c of 8 n.
    static __device__ float result(const float* shared, int r, int c) {
        const int l = r % 8 * 4 + c % 8 / 2, j = r / 8 * 2 + c % 2;
        float sum = 0;
        for (int w = 0; w < runs; ++w) sum += shared[((w * n + c / 8) * 4 + j) * 32 + l];
        return sum;
    }

  private:
    static constexpr int ahead = tiles_ahead(f, n);

    // Reads the first tiles from the `skip`th on.
    __device__ void load(const std::byte* block, int skip) {
        const TilePlace from = tile_place<f>(block, tiles_, first_);
#pragma unroll
        for (int i = 0; i < ahead; ++i)
            if (i >= skip && first_ + i < last_) load_tile<f>(from, i, ahead_[i]);
    }

    const std::byte* block_;
    int warp_, tiles_, first_, last_;
    LaneTile<f> ahead_[ahead];  // a tile is replaced by one that far behind it as soon as it is used
};

// Column 16 s + 4 t + i of the lane's row g + 8 half, as the format defines it: with f32 table values, scale
// times code and then the minimum, each rounded.
template <TileFormat f>
__device__ float value_of(const LaneTile<f>& tile, int s, int half, int i, const float* level) {
    const int which = half + 2 * (i / 2), side = i % 2;  // fragment and half of it
    if constexpr (f.real()) {
        const auto bits = static_cast<uint16_t>(tile.codes[s].w[which] >> (16 * side));
        return half_to_float(bits);
    } else {
        float code;
        if constexpr (f.table) {
            code = level[tile.codes[0].w[s] >> (8 * which + 4 * side) & 15];
        } else {
            uint32_t a[4];
            fragment(tile, s, static_cast<const uint32_t*>(nullptr), a);
            code = half_to_float(static_cast<uint16_t>(a[which] >> (16 * side)));
        }
        const int group = 16 * s / f.group;
        const float product = scale_of(tile, half, group, 0) * code;
        return f.min ? product + scale_of(tile, half, group, 1) : product;
    }
}
