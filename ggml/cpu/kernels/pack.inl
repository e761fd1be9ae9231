// Packing: one group of weight rows from the file's layout into the packed one (ggml/cpu/packed.h).
// Runs once per weight at load, or per call when weights are used in place.

// The file is read this far ahead: `lanes` rows at once are more streams than the processor follows.
constexpr int64_t file_ahead = 512;

template <class Fmt>
struct UnpackedSpan {
    using P = PackedOf<Fmt>;
    alignas(64) int8_t q[lanes][P::span];
    float scale[P::groups][lanes], min[P::groups][lanes];
    float d[lanes], dmin[lanes];  // of factors
};

// Columns of span `s` of row r; beyond k columns everything is zero.
template <class Fmt>
inline void unpack_row(const std::byte* row, int64_t k, int64_t s, int r, UnpackedSpan<Fmt>& u) {
    using P = PackedOf<Fmt>;
    constexpr int per_block = Fmt::block_len / Fmt::group;
    for (int64_t i = 0; i < P::span; i += Fmt::block_len) {
        float scale[per_block], min[per_block];
        int8_t* q = u.q[r] + i;
        const int64_t at = s * P::span + i;
        if (at < k) {
            typename Fmt::Block b;
            const std::byte* from = row + at / Fmt::block_len * static_cast<int64_t>(sizeof b);
            prefetch_lines<sizeof b>(from + file_ahead);
            std::memcpy(&b, from, sizeof b);
            if constexpr (P::has_min)
                Fmt::unpack(b, q, scale, min);
            else
                Fmt::unpack(b, q, scale);
            if constexpr (P::codes.scales == ScaleKind::factor) {
                u.d[r] = f16_to_f32(b.d);
                if constexpr (P::has_min) u.dmin[r] = -f16_to_f32(b.dmin);
            }
        } else {
            std::memset(q, P::codes.table ? 0 : -P::codes.zero, Fmt::block_len);
            for (int g = 0; g < per_block; ++g) scale[g] = min[g] = 0;
        }
        for (int g = 0; g < per_block; ++g) {
            u.scale[i / Fmt::group + g][r] = scale[g];
            if constexpr (P::has_min) u.min[i / Fmt::group + g][r] = min[g];
        }
    }
}

template <ScaleKind kind>
inline void write_scales(const float* v, [[maybe_unused]] const float* d, std::byte* out) {
    for (int r = 0; r < lanes; ++r) {
        if constexpr (kind == ScaleKind::f16) {
            const uint16_t h = f32_to_f16(v[r]);
            std::memcpy(out + 2 * r, &h, 2);
        } else if constexpr (kind == ScaleKind::bf16) {
            const uint16_t h = f32_to_bf16(v[r]);
            std::memcpy(out + 2 * r, &h, 2);
        } else if constexpr (kind == ScaleKind::f32) {
            std::memcpy(out + 4 * r, v + r, 4);
        } else {
            out[r] = static_cast<std::byte>(static_cast<int8_t>(factor_of(v[r], d[r])));
        }
    }
}

// Plane of `bits` (bits `from` .. of each code) of a block of 32 columns.
template <class Fmt, int bits, int from>
inline void write_plane(const UnpackedSpan<Fmt>& u, int64_t column, uint32_t shift, std::byte* out) {
    constexpr int quads = 8 / bits;
    constexpr uint32_t mask = ((1u << bits) - 1) * 0x01010101u;
    for (int r = 0; r < lanes; ++r)
        for (int v = 0; v < 8 / quads; ++v) {
            uint32_t word = 0;
            for (int t = 0; t < quads; ++t) {
                uint32_t quad;
                std::memcpy(&quad, u.q[r] + column + 4 * (v * quads + t), 4);
                // Adds `shift` to every byte without carries between them.
                quad = ((quad & 0x7f7f7f7fu) + (shift & 0x7f7f7f7fu)) ^ ((quad ^ shift) & 0x80808080u);
                word |= (quad >> from & mask) << (bits * t);
            }
            std::memcpy(out + (v * lanes + r) * 4, &word, 4);
        }
}

template <class Fmt>
inline void pack_codes(const std::byte* const* rows, int64_t k, std::byte* out) {
    using P = PackedOf<Fmt>;
    constexpr CodeLayout c = P::codes;
    constexpr int main = c.bits == 8 ? 8 : c.bits >= 4 ? 4 : c.bits >= 2 ? 2 : 1, extra = c.bits - main;
    constexpr uint32_t shift = 0x01010101u * static_cast<uint32_t>(c.table       ? 0
                                                                   : c.is_signed ? weight_offset
                                                                                 : c.zero);
    UnpackedSpan<Fmt> u;
    for (int64_t s = 0; s < P::spans(k); ++s, out += P::span_bytes) {
        std::memset(u.d, 0, sizeof u.d);
        std::memset(u.dmin, 0, sizeof u.dmin);
        for (int r = 0; r < lanes; ++r) {
            if (rows[r]) {
                unpack_row<Fmt>(rows[r], k, s, r, u);
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
        for (int64_t b = 0; b < P::span / 32; ++b) {
            std::byte* codes = out + P::codes_at + b * P::block_bytes;
            write_plane<Fmt, main, 0>(u, 32 * b, shift, codes);
            if constexpr (extra > 0)
                write_plane<Fmt, extra, main>(u, 32 * b, shift, codes + main * lanes * 4);
        }
    }
}

// Units of 32 bits: one f32 or two 16-bit columns of each row; an odd last column is paired with zero.
template <class Fmt>
inline void pack_real_rows(const std::byte* const* rows, int64_t k, std::byte* out) {
    constexpr int64_t parts = 4 / static_cast<int64_t>(sizeof(typename Fmt::Block));
    constexpr int64_t step = lanes * parts;
    alignas(64) std::byte copy[lanes][lanes * 4];
    for (int64_t at = 0; at < k; at += step) {
        const int64_t n = k - at < step ? k - at : step;
        I v[lanes];
        for (int r = 0; r < lanes; ++r) {
            if (n < step || !rows[r]) std::memset(copy[r], 0, sizeof copy[r]);
            if (rows[r]) {
                const std::byte* from = rows[r] + at * (4 / parts);
                prefetch_lines<lanes * 4>(from + file_ahead);
                std::memcpy(copy[r], from, static_cast<size_t>(n * (4 / parts)));
            }
            v[r] = load_i(copy[r]);
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
    visit_format(type.type, [&]<class Fmt>() {
        if constexpr (Fmt::dot == DotClass::real)
            pack_real_rows<Fmt>(rows, k, out);
        else if constexpr (code_layout<Fmt>().bits > 0)
            pack_codes<Fmt>(rows, k, out);
    });
}
