// Packing: one group of weight rows from the file's layout into the packed one (ggml/cpu/packed.h), once per
// weight at load or per call when weights are used in place; and rows of activations into codes of int8.

template <class Fmt>
struct UnpackedSpan {
    using P = PackedOf<Fmt>;
    alignas(64) int8_t q[lanes][P::span];
    float scale[P::groups][lanes], min[P::groups][lanes];
    float d[lanes], dmin[lanes];  // of factors
};
template <class Fmt>
constexpr int64_t blocks_of_span = PackedOf<Fmt>::span / Fmt::block_len;

// Blocks of span `s` of every row -> blocks[row]. They are copied before any of them is unpacked: what has
// just been written in one way waits in the processor when it is read in another. What lies `ahead` bytes
// further is asked for.
template <class Fmt>
inline int64_t copy_blocks(const std::byte* const* rows, int64_t ahead, int64_t k, int64_t s,
                           typename Fmt::Block (&blocks)[lanes][blocks_of_span<Fmt>]) {
    constexpr int64_t per_span = blocks_of_span<Fmt>;
    constexpr auto bytes = static_cast<int64_t>(sizeof(typename Fmt::Block));
    const int64_t left = k / Fmt::block_len - s * per_span, n = left < per_span ? left : per_span;
    for (int r = 0; r < lanes; ++r) {
        if (!rows[r]) continue;
        const std::byte* from = rows[r] + s * per_span * bytes;
        prefetch_lines<per_span * bytes>(from + ahead);
        if (n == per_span) {
            std::memcpy(blocks[r], from, per_span * bytes);
            continue;
        }
        for (int64_t i = 0; i < n; ++i) std::memcpy(&blocks[r][i], from + i * bytes, bytes);
    }
    return n;
}

// n blocks of row r of a span; behind them everything is zero.
template <class Fmt>
inline void unpack_row(const typename Fmt::Block* blocks, int64_t n, int r, UnpackedSpan<Fmt>& u) {
    using P = PackedOf<Fmt>;
    constexpr int per_block = Fmt::block_len / Fmt::group, times = Fmt::group / P::group;
    for (int64_t i = 0; i < blocks_of_span<Fmt>; ++i) {
        float scale[per_block], min[per_block];
        int8_t* q = u.q[r] + i * Fmt::block_len;
        if (i < n) {
            const typename Fmt::Block& b = blocks[i];
            if constexpr (P::has_min)
                Fmt::unpack(b, q, scale, min);
            else
                Fmt::unpack(b, q, scale);
            if constexpr (P::codes.scales == ScaleKind::factor) {
                float d;
                if constexpr (requires { b.d; })
                    d = f16_to_f32(b.d);
                else
                    d = f16_to_f32(Fmt::d_of(b));
                u.d[r] = joins_halves<Fmt> && P::codes.zero > 0 ? -d : d;  // for products that fit a byte
                if constexpr (P::has_min) u.dmin[r] = -f16_to_f32(b.dmin);
            }
        } else {
            std::memset(q, P::codes.table ? 0 : -P::codes.zero, Fmt::block_len);
            for (int g = 0; g < per_block; ++g) scale[g] = min[g] = 0;
        }
        for (int g = 0; g < per_block * times; ++g) {
            u.scale[i * per_block * times + g][r] = scale[g / times];
            if constexpr (P::has_min) u.min[i * per_block * times + g][r] = min[g / times];
        }
    }
}

// The rows' scales v, or the integers s for which d * s is v. Infinities and NaNs of a damaged file are in d,
// so there s is any number but 0.
template <ScaleKind kind>
inline void write_scales(const float* v, [[maybe_unused]] const float* d, std::byte* out) {
    if constexpr (kind == ScaleKind::f16) {
        store_f16(reinterpret_cast<uint16_t*>(out), load(v));
    } else if constexpr (kind == ScaleKind::bf16) {
        for (int r = 0; r < lanes; ++r) {
            const uint16_t h = f32_to_bf16(v[r]);
            std::memcpy(out + 2 * r, &h, 2);
        }
    } else if constexpr (kind == ScaleKind::f32) {
        store(reinterpret_cast<float*>(out), load(v));
    } else {
        store_i8(reinterpret_cast<int8_t*>(out), to_int(max(min(load(v) / load(d), set1(127)), set1(-128))));
    }
}

// The rows' integers of both halves of a block: those of a row side by side.
inline void pair_halves(std::byte* integers) {
    std::byte apart[2 * lanes];
    std::memcpy(apart, integers, sizeof apart);
    for (int r = 0; r < lanes; ++r)
        for (int h = 0; h < 2; ++h) integers[2 * r + h] = apart[h * lanes + r];
}

// A block's quads as vectors of codes of `bits`, from bit `to` of quad j on; see ggml/cpu/packed.h.
template <int bits, int j = 0, int to = 0>
inline void join_quads(const I* quads, I (&vectors)[bits]) {
    constexpr CodePiece p = code_piece(bits, j, to);
    const I moved = and_i(shifted<to - p.at>(quads[j]), set1_i8(((1 << p.n) - 1) << p.at));
    vectors[p.vector] = or_i(vectors[p.vector], moved);
    if constexpr (to + p.n < bits)
        join_quads<bits, j, to + p.n>(quads, vectors);
    else if constexpr (j < 7)
        join_quads<bits, j + 1>(quads, vectors);
}

template <class Fmt>
inline void pack_codes(const std::byte* const* rows, int64_t ahead, int64_t k, std::byte* out) {
    using P = PackedOf<Fmt>;
    constexpr CodeLayout c = P::codes;
    constexpr int zero = c.table ? 0 : c.is_signed ? weight_offset : c.zero;  // of codes as they are stored
    constexpr int step = lanes > 8 ? lanes : 8;                               // quads, of whole blocks
    static_assert(P::span % (4 * step) == 0);
    typename Fmt::Block blocks[lanes][blocks_of_span<Fmt>];
    UnpackedSpan<Fmt> u;
    for (int64_t s = 0; s < P::spans(k); ++s, out += P::span_bytes) {
        const int64_t n = copy_blocks<Fmt>(rows, ahead, k, s, blocks);
        std::memset(u.d, 0, sizeof u.d);
        std::memset(u.dmin, 0, sizeof u.dmin);
        for (int r = 0; r < lanes; ++r) {
            if (rows[r]) {
                unpack_row<Fmt>(blocks[r], n, r, u);
            } else {
                std::memset(u.q[r], 0, sizeof u.q[r]);
                for (int64_t g = 0; g < P::groups; ++g) u.scale[g][r] = u.min[g][r] = 0;
            }
        }
        if constexpr (c.scales == ScaleKind::factor) {
            write_scales<ScaleKind::f16>(u.d, nullptr, out);
            write_scales<ScaleKind::f16>(u.dmin, nullptr, out + 2 * lanes);
        }
        for (int64_t g = 0; g < P::groups; ++g) {
            write_scales<c.scales>(u.scale[g], u.d, out + P::scales_at + g * P::per_scale);
            if constexpr (P::has_min)
                write_scales<c.scales>(u.min[g], u.dmin, out + P::mins_at + g * P::per_scale);
        }
        if constexpr (joins_halves<Fmt> || widens_halves<Fmt>)
            for (int64_t g = 0; g < P::groups; g += 2) pair_halves(out + P::scales_at + g * P::per_scale);
        std::byte* codes = out + P::codes_at;
        for (int64_t column = 0; column < P::span; column += 4 * step) {
            I quads[step];
            for (int first = 0; first < step; first += lanes) {
                I v[lanes];
                for (int r = 0; r < lanes; ++r) v[r] = load_i(u.q[r] + column + 4 * first);
                transpose(v);
                for (int r = 0; r < lanes; ++r) quads[first + r] = sub_i8(v[r], -zero);
            }
            for (int at = 0; at < step; at += 8, codes += P::block_bytes) {
                I vectors[c.bits];
                for (I& v : vectors) v = set1_i(0);
                join_quads<c.bits>(quads + at, vectors);
                for (int i = 0; i < c.bits; ++i) store_i(codes + i * lanes * 4, vectors[i]);
            }
        }
    }
}

// Units of 32 bits: one f32 or two 16-bit columns of each row; an odd last column is paired with zero.
template <class Fmt>
inline void pack_real_rows(const std::byte* const* rows, int64_t ahead, int64_t k, std::byte* out) {
    constexpr int64_t parts = 4 / static_cast<int64_t>(sizeof(typename Fmt::Block));
    constexpr int64_t step = lanes * parts;
    alignas(64) std::byte copy[lanes * 4];
    for (int64_t at = 0; at < k; at += step) {
        const int64_t n = k - at < step ? k - at : step;
        I v[lanes];
        for (int r = 0; r < lanes; ++r) {
            if (!rows[r]) {
                v[r] = set1_i(0);
                continue;
            }
            const std::byte* from = rows[r] + at * (4 / parts);
            prefetch_lines<lanes * 4>(from + ahead);
            if (n == step) {
                v[r] = load_i(from);
                continue;
            }
            std::memset(copy, 0, sizeof copy);
            std::memcpy(copy, from, static_cast<size_t>(n * (4 / parts)));
            v[r] = load_i(copy);
        }
        transpose(v);
        for (int64_t i = 0; i < (n + parts - 1) / parts; ++i, out += lanes * 4) store_i(out, v[i]);
    }
}

// Bytes of a packed group of `lanes` rows of k columns; 0 where the format has no packed layout.
inline size_t packed_group_bytes(const TypeInfo& type, int64_t k) {
    size_t bytes = 0;
    visit_format(type.type, [&]<class Fmt>() {
        if constexpr (Fmt::dot == DotClass::real)
            bytes = static_cast<size_t>((k * static_cast<int64_t>(sizeof(typename Fmt::Block)) + 3) / 4 * 4 *
                                        lanes);
        else if constexpr (code_layout<Fmt>().bits > 0)
            bytes = static_cast<size_t>(PackedOf<Fmt>::spans(k) * PackedOf<Fmt>::span_bytes);
    });
    return bytes;
}

// n <= lanes rows of k columns.
inline void pack_group(const TypeInfo& type, const std::byte* w, int64_t stride, int64_t n, int64_t k,
                       std::byte* out) {
    const std::byte* rows[lanes];
    for (int64_t i = 0; i < lanes; ++i) rows[i] = i < n ? w + i * stride : nullptr;
    // The same place of the next group is asked for: so many rows at once are more streams than the processor
    // follows. It may lie outside the weight.
    const int64_t ahead = lanes * stride;
    visit_format(type.type, [&]<class Fmt>() {
        if constexpr (Fmt::dot == DotClass::real)
            pack_real_rows<Fmt>(rows, ahead, k, out);
        else if constexpr (code_layout<Fmt>().bits > 0)
            pack_codes<Fmt>(rows, ahead, k, out);
    });
}

// Row `row` of a tile of h rows in blocks of 32 values, as codes and scale, d = amax / 127. A block with a
// NaN or an infinity gets a NaN scale. Rows lie one behind the other. Where they are multiplied two at a
// time, both of a pair lie in turn instead, by eight codes and by single numbers of blocks and halves; but
// the last row of an odd number is by itself.
inline void quantize_row(const float* x, int64_t k, int64_t row, int64_t h, int8_t* q, Int8Block* blocks,
                         Int8Halves* halves) {
    const int64_t in_turn = dot_rows == 2 && row / 2 * 2 + 1 < h ? 2 : 1, turn = row % in_turn;
    const int64_t first = row - turn;
    const auto number = [&](void* of, int64_t i, auto value) {
        std::memcpy(static_cast<std::byte*>(of) + 4 * (i * in_turn + turn), &value, 4);
    };
    q += first * 32 + turn * 8, blocks += first, halves += first;
    for (int64_t i = 0; i < k; i += 32, x += 32, q += 32 * h, blocks += h, halves += h) {
        F largest = zero(), poison = zero();
        for (int j = 0; j < 32; j += lanes) {
            const F v = load(x + j);
            largest = max(abs(v), largest);
            poison = fma(v, zero(), poison);
        }
        const float amax = max_of(largest), bad = sum(poison);
        const F inverse = set1(amax > 1e-35f && bad == 0 ? 127 / amax : 0);
        I total[2] = {set1_i(0), set1_i(0)};
        for (int j = 0; j < 32; j += lanes) {
            // Operand order turns a NaN into 127: its block is poisoned by the scale.
            const F v = max(min(load(x + j) * inverse, set1(127)), set1(-127));
            const I code = to_int(v);
            total[j / 16] = add_i(total[j / 16], code);
            store_i8(q + (in_turn == 1 ? j : j / 8 * 16 + j % 8), code);
        }
        const int32_t low = sum_i(total[0]), high = sum_i(total[1]);
        const float d = amax / 127 + bad;
        number(blocks, 0, d), number(blocks, 1, d * static_cast<float>(low + high));
        number(blocks, 2, -sum_unit * (low + high));
        number(halves, 0, d * static_cast<float>(low)), number(halves, 1, d * static_cast<float>(high));
        number(halves, 2, -sum_unit * low), number(halves, 3, -sum_unit * high);
        if constexpr (widening_multiplies)
            number(halves, 4, (-sum_unit * low & 0xffff) | -sum_unit * high * 0x10000);
    }
}

extern const PackKernels pack_kernels;
constinit const PackKernels pack_kernels{
    .lanes = lanes, .group_bytes = packed_group_bytes, .pack_group = pack_group, .quantize = quantize_row};
