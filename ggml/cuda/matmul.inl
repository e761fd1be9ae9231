// Products of tiles with columns of activations: what matmul.cu and moe_matmul.cu have in common.
// A warp multiplies 16 weight rows by up to 8 n columns, 64 columns of the weights at a time. Every weight
// becomes one f16, scale and minimum included (2^-12 of its size is lost, a hundredth of what its code lost):
// sums then stay as they are from the first column to the last, however many there are, and with them the
// number of instructions beside the products.

// Activations as fragments want them. Columns of the product (rows of x) lie in groups of `width`: 8, or 1
// where a row is alone. A group is, for each tile of 64 values,
//   [half of the tile][column][t][step of the half][4 values]
// in f16 times a power of two that is the column's own: a lane reads two steps at once, a warp 512 bytes in a
// row.
template <int width>
struct Activations {
    std::byte* values;
    float* inverse;  // of the column's power of two
    int64_t tiles;

    static constexpr int value_bytes = 128,
                         half_bytes = 64 * width;  // of a column and tile; of half a group's
    static constexpr int tile_bytes = width * value_bytes;

    __device__ std::byte* values_of(int64_t column) const {
        return values + column / width * tiles * tile_bytes + column % width * (value_bytes / 2);
    }

    // Where prepare_column() leaves a column: four values from 4 `unit` on.
    struct Column {
        std::byte* values;
        __device__ void put(int unit, Words2 w) const {
            const int tile = unit / 16, step = unit / 4 % 4;
            *reinterpret_cast<Words2*>(values + tile * tile_bytes + step / 2 * half_bytes + unit % 4 * 16 +
                                       step % 2 * 8) = w;
        }
    };
    __device__ Column column(int64_t c) const { return {values_of(c)}; }
};

// Memory cut into its parts.
template <int width>
__host__ __device__ inline Activations<width> arranged(std::byte* memory, int64_t columns, int64_t k) {
    using A = Activations<width>;
    const int64_t tiles = (k + 63) / 64, groups = (columns + width - 1) / width;
    return {memory, reinterpret_cast<float*>(memory + groups * tiles * A::tile_bytes), tiles};
}

template <int width>
constexpr size_t arranged_bytes(int64_t columns, int64_t k) {
    using A = Activations<width>;
    const int64_t tiles = (k + 63) / 64, groups = (columns + width - 1) / width;
    return static_cast<size_t>(groups * (tiles * A::tile_bytes + width * 4));
}

// The power of two that brings `most` to [2^14, 2^15); 1 for zero, infinities and NaNs.
__device__ inline float range_factor(float most) {
    const int exponent = static_cast<int>(float_bits(most) >> 23 & 255) - 127;
    if (exponent == 128 || most == 0) return 1;
    const int shift = 14 - (exponent > -100 ? exponent : -100);
    return bits_float(static_cast<uint32_t>(shift + 127) << 23);
}

// Of a power of two as range_factor() makes them.
__device__ inline float inverse_of_power(float p) { return bits_float((254u << 23) - float_bits(p)); }

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
            if (u < units)
                place.put(u, {{half2(v[j][0] * factor, v[j][1] * factor),
                               half2(v[j][2] * factor, v[j][3] * factor)}});
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

// A scale, or another f16 in a word's upper or lower half, twice.
__device__ inline uint32_t half_twice(uint32_t word, int upper) {
    return byte_perm(word, 0, upper ? 0x3232 : 0x1010);
}

constexpr uint32_t half_of_power(int exponent) {  // 2^exponent as f16, twice
    return static_cast<uint32_t>(exponent + 15) << 10 | static_cast<uint32_t>(exponent + 15) << 26;
}

// Scale (which = 0) or minimum (1) of a group of the tile as f16, twice: of the lane's row g + 8 half, in the
// units of that row (tiles.h).
template <TileFormat f>
__device__ uint32_t scale_of(const LaneTile<f>& t, int half, int group, int which) {
    constexpr int kinds = f.min ? 2 : 1;
    const int i = (half * kinds + which) * f.groups() + group, at = half * kinds + which;
    if constexpr (!f.factor()) {
        return half_twice(t.scales[i / 2], i % 2);
    } else {
        const uint32_t word = t.scales[i / 4], byte = 0x4040 | static_cast<uint32_t>(i % 4) * 0x0101;
        const uint32_t d = half_twice(t.super[at / 2], at % 2);
        if (which == 1) return half2_mul(byte_perm(word, 0, byte), d);
        // Under the exponent of a power of two the integer is added to that.
        constexpr int exponent = f.min ? f.factor_bits + 2 : 10;
        constexpr uint32_t front = half_of_power(exponent);
        const uint32_t sum = byte_perm(word, front >> 8 | front, byte);
        constexpr uint32_t sign = 0x80008000, with_128 = front + 0x00800080;
        if constexpr (f.min) return half2_fma(sum, d, half2_mul(d, front | sign));
        return half2_mul(half2_sub(sum, with_128), d);
    }
}

// The codes of the lane's fragment of step s: looked up, or as they lie in the low bits of a half: times
// 2^-24, and those of the upper row, which stay in their nibble, times 16 as well. Values are themselves.
template <TileFormat f>
__device__ void codes_of(const LaneTile<f>& t, int s, uint32_t table, uint32_t (&a)[4]) {
    if constexpr (f.main == 16) {
        for (int i = 0; i < 4; ++i) a[i] = t.codes[s].w[i];
    } else if constexpr (f.main == 8) {
        for (int i = 0; i < 4; ++i)
            a[i] = byte_perm(t.codes[s / 2].w[s % 2 * 2 + i / 2], 0, i % 2 ? 0x4342 : 0x4140);
    } else if constexpr (f.table) {
        const uint32_t w = t.codes[0].w[s];
        for (int i = 0; i < 4; ++i)
            a[i] = load_shared(table + byte_perm(w, 0, 0x4440 | static_cast<uint32_t>(i)) * 128);
    } else {
        const uint32_t w = t.codes[0].w[s], shifted = w >> 8;
        for (int i = 0; i < 4; ++i) {
            uint32_t h = (i < 2 ? w : shifted) & (i % 2 ? 0x00f000f0 : 0x000f000f);
            if constexpr (f.extra != 0) {
                // One shift for both rows: their bits are as far apart as they have to be.
                const int bit = f.extra_bit(s, i - i % 2), to = 4;
                const uint32_t word = t.extra[f.extra_word(s)], ones = (1u << f.extra) - 1;
                const uint32_t mask = (ones | ones << 16) << (i % 2 ? 8 : 4);
                h = and_or(bit < to ? word << (to - bit) : word >> (bit - to), mask, h);
            }
            a[i] = h;
        }
    }
}

// What is subtracted from the codes of a row, as they come from codes_of().
template <TileFormat f>
constexpr uint32_t zero_code(int half) {
    return static_cast<uint32_t>(f.main == 4 && half ? 16 * f.zero : f.zero);
}

// The lane's fragment of step s: weights, in the units of their rows.
template <TileFormat f>
__device__ void fragment(const LaneTile<f>& t, int s, uint32_t table, uint32_t (&a)[4]) {
    codes_of(t, s, table, a);
    if constexpr (!f.real()) {
        const int group = 16 * s / f.group;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint32_t scale = scale_of(t, half, group, 0);
            const uint32_t minus_zero = 0x80008000 | zero_code<f>(half) * 0x10001;
#pragma unroll
            for (int i = half; i < 4; i += 2)
                if constexpr (f.min)
                    a[i] = half2_fma(a[i], scale, scale_of(t, half, group, 1));
                else if constexpr (f.zero != 0)
                    a[i] = half2_fma(a[i], scale, half2_mul(scale, minus_zero));
                else
                    a[i] = half2_mul(a[i], scale);
        }
    }
}

// Sixteen rows times n groups of eight columns, in f32: fragment d[4] of each group.
template <int n>
struct Sums {
    float d[n][4];
};

// The columns of a warp's product, for each group of eight: where the lane's share of column g of x begins.
// A column that is not there is any other: nobody asks for its results.
template <int n>
struct WarpColumns {
    const std::byte* x[n];

    // Column c of x is place(c).
    template <int width, class Place>
    __device__ WarpColumns(const Activations<width>& a, const Place& place) {
        for (int i = 0; i < n; ++i) x[i] = a.values_of(place(8 * i + lane() / 4)) + lane() % 4 * 16;
    }
};

// Multiplies half a tile, two steps. Every product goes through here, which is why a row's bits do not depend
// on the kernel.
template <TileFormat f, int n>
__device__ void multiply_half(const LaneTile<f>& tile, int half, uint32_t table, const Words4 (&x)[n],
                              Sums<n>& sums) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
        uint32_t a[4];
        fragment(tile, 2 * half + s, table, a);
#pragma unroll
        for (int i = 0; i < n; ++i) {
            const uint32_t b[2] = {x[i].w[s * 2], x[i].w[s * 2 + 1]};
            mma_f16(sums.d[i], a, b);
        }
    }
}

template <TileFormat f, int n, int width>
__device__ void multiply_tile(const LaneTile<f>& tile, int index, uint32_t table,
                              const WarpColumns<n>& columns, Sums<n>& sums) {
    using A = Activations<width>;
    Words4 x[2][n];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < n; ++i)
            x[half][i] = *reinterpret_cast<const Words4*>(columns.x[i] + int64_t{index} * A::tile_bytes +
                                                          half * A::half_bytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) multiply_half(tile, half, table, x[half], sums);
}

// Values of a byte of two table codes, once for each lane, so that lookups do not collide: the first 32 KiB
// of shared memory. Returns the address of the lane's column. It comes from a shuffle: knowing nothing about
// it, the compiler does not take the address of a lookup apart.
__device__ inline uint32_t fill_table(const TileTable& levels) {
    auto* const table = reinterpret_cast<uint32_t*>(shared_memory());
    for (int byte = warp_index(); byte < 256; byte += block_threads() / 32)
        table[byte * 32 + lane()] = half2(levels.level[byte & 15], levels.level[byte >> 4]);
    return shuffle(shared_address(table + lane()), lane());
}

constexpr size_t table_size = size_t{32} << 10;
constexpr size_t table_bytes(TileFormat f) { return f.table ? table_size : 0; }

// Tiles a warp keeps on their way: enough bytes for the latency of memory even where a multiprocessor has few
// warps, few enough for the registers beside the columns of x and their sums.
constexpr int tiles_ahead(TileFormat f, int n) {
    const int words = 4 * f.words4() + f.extra + (f.lane_scales() + f.lane_super()) / 4;
    const int most = (56 - 8 * (n - 1)) / words, least = n == 1 ? 4 : 2;
    return most < least ? least : most > 8 ? 8 : most;
}

// Blocks of 256 threads that a multiprocessor holds at once: what registers are dealt out for.
constexpr int resident_blocks = 2;

// What a weight of row r of 16 is times, in units of that row.
template <TileFormat f>
__device__ float row_factor(const std::byte* block, int64_t k, int64_t r) {
    return reinterpret_cast<const float*>(block + f.factors_at(k))[r];
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
    __device__ void multiply(uint32_t table, const WarpColumns<n>& columns, Sums<n>& sums,
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
    __device__ void run(uint32_t table, const WarpColumns<n>& columns, float* shared,
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

__device__ inline float half_of(uint32_t word, int upper) {
    return half_to_float(static_cast<uint16_t>(word >> (16 * upper)));
}

// A byte of a scale (which = 0) or minimum (1) as a number: under the exponent of a power of two it is added
// to that. Scales beside minima are in the upper bits; minima are numbers below the normal ones.
template <TileFormat f>
constexpr uint32_t byte_front(int which) {
    const int exponent = 15 - (which == 1 ? 24 : f.min ? 8 - f.factor_bits : 0);
    return static_cast<uint32_t>(exponent + 127) << 23;
}
// Scale or minimum as scale_of() has it, but not rounded to f16: d, an f16, times nine bits is exact. Two
// instructions, for those that convert numbers take as long as four others; `front`: byte_front().
template <TileFormat f>
__device__ float exact_scale_of(const LaneTile<f>& t, int half, int group, int which, uint32_t front) {
    const int at = half * (f.min ? 2 : 1) + which, i = at * f.groups() + group;
    if constexpr (!f.factor()) {
        return half_of(t.scales[i / 2], i % 2);
    } else {
        constexpr int zero = f.min ? 0 : 128;
        const float d = half_of(t.super[at / 2], at % 2);
        const uint32_t sum = byte_perm(t.scales[i / 4], front, 0x7604 | static_cast<uint32_t>(i % 4) << 4);
        return fused(bits_float(sum), d, d * -(bits_float(byte_front<f>(which)) + zero));
    }
}
template <TileFormat f>
__device__ float exact_scale_of(const LaneTile<f>& t, int half, int group, int which) {
    return exact_scale_of(t, half, group, which, byte_front<f>(which));
}

// Column 16 s + 4 t + i of the lane's row g + 8 half, in the unit of that row: scale times code and then the
// minimum, each rounded to f32 as the format has it.
template <TileFormat f>
__device__ float value_of(const LaneTile<f>& tile, int s, int half, int i, const float* level) {
    const int which = half + 2 * (i / 2), side = i % 2;  // fragment and half of it
    float code;
    if constexpr (f.table) {
        code = level[tile.codes[0].w[s] >> (8 * which + 4 * side) & 15];
    } else {
        uint32_t a[4];
        codes_of(tile, s, 0, a);
        code = half_of(a[which], side) - half_of(zero_code<f>(half), 0);
    }
    if constexpr (!f.real()) {
        code *= exact_scale_of(tile, half, 16 * s / f.group, 0);
        if constexpr (f.min) code += exact_scale_of(tile, half, 16 * s / f.group, 1);
    }
    return code;
}
