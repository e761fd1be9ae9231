// Products of tiles with columns of activations: what matmul.cu and moe_matmul.cu have in common.
// A warp multiplies 16 weight rows by up to 8 n columns, 64 columns of the weights at a time; codes enter the
// tensor cores as exact f16 integers and scales are applied to the f32 sums of their group.

// Activations as fragments want them: per column of the product (a row of x) units of four values, each an
// f16 times a power of two that is the column's own.
// `sums` holds the sum of each 16 values, for formats with minima.
struct Activations {
    std::byte* values;
    float* sums;
    float* inverse;                   // of the column's power of two
    int64_t step_stride, col_stride;  // bytes of `values` from 16 values, and from a column, to the next
    int64_t sum_step_stride, sum_col_stride;  // of `sums`, in floats
};

constexpr int unit_bytes = 8;

// Of sums: whole 16 bytes, for copies.
__host__ __device__ constexpr int64_t padded_columns(int64_t columns) { return (columns + 3) / 4 * 4; }

// Memory cut into its parts, with the columns of a step side by side (what a batch reads together), or each
// column whole (`by_column`: what is gathered from here and there).
__host__ __device__ inline Activations arranged(std::byte* memory, int64_t columns, int64_t k,
                                                bool by_column) {
    const int64_t steps = (k + 63) / 64 * 4;
    Activations x{};
    x.values = memory;
    x.step_stride = (by_column ? 1 : columns) * 4 * unit_bytes;
    x.col_stride = (by_column ? steps : 1) * 4 * unit_bytes;
    x.sums = reinterpret_cast<float*>(memory + steps * columns * 4 * unit_bytes);
    x.sum_step_stride = by_column ? 1 : padded_columns(columns);
    x.sum_col_stride = by_column ? steps : 1;
    x.inverse = x.sums + steps * padded_columns(columns);
    return x;
}

constexpr size_t arranged_bytes(int64_t columns, int64_t k) {
    const int64_t steps = (k + 63) / 64 * 4;
    return static_cast<size_t>(columns * steps * 4 * unit_bytes + padded_columns(columns) * (steps + 1) * 4);
}

// The power of two that brings `most` to [2^14, 2^15); 1 for zero, infinities and NaNs.
__device__ inline float range_factor(float most) {
    const int exponent = static_cast<int>(float_bits(most) >> 23 & 255) - 127;
    if (exponent == 128 || most == 0) return 1;
    const int shift = 14 - (exponent > -100 ? exponent : -100);
    return bits_float(static_cast<uint32_t>(shift + 127) << 23);
}

// Converts a row of k values x(i) for column c; called by the whole block. `partial`: shared, a float per
// warp.
template <class Values>
__device__ void prepare_column(const Values& x, int k, const Activations& to, int64_t c, float* partial) {
    float most = 0;
    for (int i = thread_index(); i < k; i += block_threads()) {
        const float v = fabsf(x(i));
        most = v > most || v != v ? v : most;
    }
    const float factor = range_factor(block_max(most, partial));
    const int units = (k + 63) / 64 * 16;
    for (int first = warp_index() * 32; first < units; first += block_threads()) {
        const int u = first + lane();
        float v[4] = {}, sum = 0;
        for (int i = 0; i < 4; ++i)
            if (4 * u + i < k) v[i] = x(4 * u + i) * factor;
        const Words2 w{{half2(v[0], v[1]), half2(v[2], v[3])}};
        for (int i = 0; i < 4; ++i) sum += half_to_float(static_cast<uint16_t>(w.w[i / 2] >> (i % 2 * 16)));
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        if (u >= units) continue;
        *reinterpret_cast<Words2*>(to.values + u / 4 * to.step_stride + c * to.col_stride +
                                   u % 4 * unit_bytes) = w;
        if (u % 4 == 0) to.sums[u / 4 * to.sum_step_stride + c * to.sum_col_stride] = sum;
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

template <TileFormat f>
__device__ void load_tile(const std::byte* block, int64_t tiles, int64_t tile, LaneTile<f>& out) {
    const std::byte* const at = block + tile * f.tile_bytes();
    const int l = lane(), g = l / 4;
#pragma unroll
    for (int i = 0; i < f.words4(); ++i) out.codes[i] = load16(at + i * 512 + l * 16);
    load_words<4 * f.extra>(at + f.extra_at() + l * 4 * f.extra, out.extra);
    load_words<f.lane_scales()>(at + f.scales_at() + g * f.lane_scales(), out.scales);
    load_words<f.lane_super()>(block + tiles * f.tile_bytes() + (tile / 4 * 8 + g) * f.lane_super(),
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
        const auto s = static_cast<int8_t>(t.scales[i / 4] >> (i % 4 * 8));
        return half_of(t.super, half * kinds + which) * static_cast<float>(s);
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
        for (int i = 0; i < 4; ++i) a[i] = table[(w >> (8 * i) & 255) * 32 + static_cast<uint32_t>(lane())];
    } else {
        const uint32_t w = t.codes[0].w[s];
        for (int i = 0; i < 4; ++i) {
            if constexpr (f.extra == 0) {
                // Odd fragments stay in the upper nibble and read as 1024 + 16 code.
                const uint32_t shifted = i < 2 ? w : w >> 8;
                if (i % 2 == 0)
                    a[i] = half2_sub((shifted & 0x000f000fu) | exponent, base);
                else
                    a[i] = half2_fma((shifted & 0x00f000f0u) | exponent, 0x2c002c00u,
                                     half_twice(64 + f.zero) | 0x80008000u);
            } else {
                const int bit = f.extra == 2 ? 8 * (s % 2) + 2 * i : 4 * s + i;
                const uint32_t upper = t.extra[f.extra == 2 ? s / 2 : 0] >> bit;
                const uint32_t mask = f.extra == 2 ? 0x00030003u : 0x00010001u;
                a[i] = half2_sub((w >> (4 * i) & 0x000f000fu) | (upper & mask) << 4 | exponent, base);
            }
        }
    }
}

// Sixteen rows times n groups of eight columns, in f32: fragment d[4] of each group.
template <int n>
struct Sums {
    float d[n][4];
};

// The columns of a warp's product: for each group of eight, the lane's column g of x and columns 2t, 2t + 1
// of the result. Groups that are not `on` are skipped by the whole warp; a column that is not there is zeros.
template <int n>
struct WarpColumns {
    const std::byte* x[n];  // null: zeros
    int64_t sum[n][2];
    bool on[n];
};

template <TileFormat f, int n>
__device__ void multiply_tile(const LaneTile<f>& tile, int64_t index, const uint32_t* table,
                              const Activations& x, const WarpColumns<n>& columns, Sums<n>& sums) {
    constexpr int group_steps = f.real() ? 4 : f.group / 16;
#pragma unroll
    for (int first = 0; first < 4; first += group_steps) {
        Sums<n> part{};
#pragma unroll
        for (int s = first; s < first + group_steps; ++s) {
            uint32_t a[4];
            fragment(tile, s, table, a);
            const int64_t at = (4 * index + s) * x.step_stride + lane() % 4 * unit_bytes;
#pragma unroll
            for (int i = 0; i < n; ++i) {
                if (!columns.on[i]) continue;
                Sums<n>& to = f.real() ? sums : part;
                Words2 v{};
                if (columns.x[i]) v = *reinterpret_cast<const Words2*>(columns.x[i] + at);
                mma_f16(to.d[i], a, v.w);
            }
        }
        if constexpr (!f.real()) {
            const int group = first / group_steps;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float scale = scale_of(tile, half, group, 0);
                const float min = f.min ? scale_of(tile, half, group, 1) : 0;
#pragma unroll
                for (int i = 0; i < n; ++i) {
                    if (!columns.on[i]) continue;
                    for (int c = 0; c < 2; ++c) {
                        float& d = sums.d[i][2 * half + c];
                        d = fused(scale, part.d[i][2 * half + c], d);
                        if constexpr (f.min) {
                            const float* const at =
                                x.sums + (4 * index + first) * x.sum_step_stride + columns.sum[i][c];
                            float total = at[0];
                            for (int j = 1; j < group_steps; ++j) total += at[j * x.sum_step_stride];
                            d = fused(min, total, d);
                        }
                    }
                }
            }
        }
    }
}

// Values of a byte of two table codes, once for each lane, so that lookups do not collide: 32 KiB.
__device__ inline void fill_table(const TileTable& levels, uint32_t* table) {
    for (int byte = warp_index(); byte < 256; byte += block_threads() / 32)
        table[byte * 32 + lane()] = half2(levels.level[byte & 15], levels.level[byte >> 4]);
}

constexpr size_t table_bytes(TileFormat f) { return f.table ? size_t{32} << 10 : 0; }

// Tiles a warp keeps on their way; enough for the latency of memory, few enough for the registers.
constexpr int tiles_ahead(TileFormat f) { return f.main == 4 ? 4 : 2; }

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

// The block's product of one row block by 8 n columns. The result is left in `shared` (runs x n x 4 x 32
// floats), to be read with result() after the barrier at the end.
template <TileFormat f, int n>
class BlockProduct {
  public:
    static constexpr size_t shared_bytes = size_t{runs} * n * 4 * 32 * sizeof(float);

    // Starts reading before the activations are there. `warp`: the number of this one among the product's.
    __device__ BlockProduct(const std::byte* block, int64_t k, int warp = warp_index())
        : block_(block), warp_(warp), tiles_(TileFormat::tiles(k)), next_(warp * run_tiles(tiles_)) {
        last_ = next_ + run_tiles(tiles_);
        last_ = last_ < tiles_ ? last_ : tiles_;
        load(ahead_);
    }

    __device__ void run(const uint32_t* table, const Activations& x, const WarpColumns<n>& columns,
                        float* shared) {
        Sums<n> sums{};
        while (next_ < last_) {
            LaneTile<f> now[ahead];
#pragma unroll
            for (int i = 0; i < ahead; ++i) now[i] = ahead_[i];
            const int64_t first = next_;
            next_ += ahead;
            load(ahead_);
#pragma unroll
            for (int i = 0; i < ahead; ++i)
                if (first + i < last_) multiply_tile(now[i], first + i, table, x, columns, sums);
        }
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
    static constexpr int ahead = tiles_ahead(f);

    __device__ void load(LaneTile<f> (&to)[ahead]) {
#pragma unroll
        for (int i = 0; i < ahead; ++i)
            if (next_ + i < last_) load_tile<f>(block_, tiles_, next_ + i, to[i]);
    }

    const std::byte* block_;
    int warp_;
    int64_t tiles_, next_, last_ = 0;
    LaneTile<f> ahead_[ahead];
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
