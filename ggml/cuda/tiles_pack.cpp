// From the file's blocks to tiles: one row block at a time, in plain code, for it runs once per weight.
// Codes and scales are taken over exactly as far as f16 reaches; formats without a layout become f16.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "ggml/cuda/tiles.h"
#include "ggml/types/code_layout.h"

namespace nibble::cuda {
namespace {

// Sixteen rows, unpacked: codes plus `zero` as stored, or 16-bit values; scales by group of columns.
struct Rows {
    int64_t cols = 0;  // rounded up to 256, beyond the row zeros
    int64_t groups = 0;
    std::vector<uint16_t> code;
    std::vector<float> scale, min;
    std::vector<float> d, dmin;  // per 256 columns
    float factor[16] = {};       // what a unit of the row is worth
    uint16_t at(int row, int64_t col) const { return code[static_cast<size_t>(row * cols + col)]; }
};

// The largest size among numbers, without a damaged file's infinities and NaNs.
float largest(std::span<const float> numbers) {
    float most = 0;
    for (const float v : numbers) most = std::isfinite(v) ? std::max(most, std::fabs(v)) : most;
    return most;
}

// The exponent of the power of two by which a number of size `most` has to be multiplied to come as close
// to 2^below as it can.
int exponent_to(int below, float most) {
    constexpr int range = 120;
    return most == 0 ? range : std::clamp(below - 1 - std::ilogb(most), -range, range);
}

// The unit of 16-bit values; values that are f16 already stay as they are.
template <class F>
float unit_of_values(const std::byte* data, int64_t k) {
    if constexpr (F::type == Type::f16) return 1;
    typename F::Block b;
    float x[F::block_len], most = 0;
    for (int64_t at = 0; at < k; at += F::block_len, data += sizeof b) {
        std::memcpy(&b, data, sizeof b);
        F::decode(b, x);
        most = std::max(most, largest(x));
    }
    return most == 0 ? 1 : std::ldexp(1.0f, -exponent_to(15, most));
}

// Places by which the byte of a scale is moved up (formats with minima), and by which d stays below what f16
// reaches: a scale's number is made by putting 2^(factor_bits + 2) in front of the integer, or an integer of
// factor_bits with a sign, and d times that must be f16.
constexpr int byte_shift(TileFormat f) { return f.min ? 8 - f.factor_bits : 0; }
constexpr int factor_range(TileFormat f) { return f.min ? f.factor_bits + 1 : f.factor_bits - 1; }

// Brings a row's scales and minima into a unit of its own.
template <TileFormat f>
void choose_unit(int row, Rows& r) {
    const auto of_row = [row](std::vector<float>& v) {
        const size_t each = v.size() / 16;
        return std::span(v).subspan(static_cast<size_t>(row) * each, each);
    };
    constexpr int scale_range = f.table ? 8 : 15;
    // A weight is scale times code times 2^-codes, and so is a minimum.
    const int codes = f.table ? 0 : f.main == 4 && row >= 8 ? 20 : 24;
    const int minima = f.factor() ? codes - 24 + byte_shift(f) : codes;
    int shift = exponent_to(f.factor() ? scale_range - factor_range(f) : scale_range,
                            largest(of_row(f.factor() ? r.d : r.scale)));
    if constexpr (f.min)
        shift = std::min(shift, minima + exponent_to(15, largest(of_row(f.factor() ? r.dmin : r.min))));
    const auto times = [&](std::vector<float>& v, int exponent) {
        for (float& x : of_row(v)) x = std::ldexp(x, exponent);
    };
    times(r.scale, shift);
    times(r.d, shift);
    times(r.min, shift - minima);
    times(r.dmin, shift - minima);
    r.factor[row] = std::ldexp(1.0f, codes - shift);
}

template <class F, TileFormat f>
void unpack_row(const std::byte* data, int64_t k, int row, Rows& r) {
    typename F::Block b;
    constexpr int64_t length = F::block_len;
    for (int64_t at = 0; at < k; at += length, data += sizeof b) {
        std::memcpy(&b, data, sizeof b);
        uint16_t* const code = r.code.data() + row * r.cols + at;
        if constexpr (f.real()) {
            float x[F::block_len];
            F::decode(b, x);
            for (int64_t i = 0; i < length; ++i) code[i] = f32_to_f16(x[i] / r.factor[row]);
        } else {
            int8_t q[F::block_len];
            float* const scale = r.scale.data() + row * r.groups + at / f.group;
            if constexpr (f.min)
                F::unpack(b, q, scale, r.min.data() + row * r.groups + at / f.group);
            else
                F::unpack(b, q, scale);
            for (int64_t i = 0; i < length; ++i) code[i] = static_cast<uint16_t>(q[i] + f.zero);
            if constexpr (f.factor()) {
                const int64_t super = row * (r.cols / 256) + at / 256;
                r.d[static_cast<size_t>(super)] = f16_to_f32(b.d);
                if constexpr (f.min) r.dmin[static_cast<size_t>(super)] = -f16_to_f32(b.dmin);
            }
        }
    }
}

void put16(std::byte* out, uint16_t v) { std::memcpy(out, &v, 2); }

// Codes of one tile: lane after lane, 16 bytes per turn.
template <TileFormat f>
void write_codes(const Rows& r, int64_t col, std::byte* out) {
    for (int lane = 0; lane < 32; ++lane)
        for (int s = 0; s < 4; ++s) {
            const int g = lane / 4, t = lane % 4;
            uint32_t main[4] = {};  // the step's words; one for 4 bits, two for 8
            for (int half = 0; half < 2; ++half)
                for (int i = 0; i < 4; ++i) {
                    const uint32_t c = r.at(g + 8 * half, col + 16 * s + 4 * t + i);
                    const int fragment = half + 2 * (i / 2), side = i % 2;
                    if constexpr (f.main == 16) {
                        main[fragment] |= c << (16 * side);
                    } else if constexpr (f.main == 8) {
                        main[fragment / 2] |= c << (8 * (fragment % 2 * 2 + side));
                    } else {
                        const int nibble = f.table ? 2 * fragment + side : fragment + 4 * side;
                        main[0] |= (c & 15) << (4 * nibble);
                        if constexpr (f.extra > 0) {
                            const int bit = f.extra_bit(s, fragment) + 16 * side;
                            std::byte* const word =
                                out + f.extra_at() + lane * 4 * f.extra + f.extra_word(s) * 4;
                            uint32_t w;
                            std::memcpy(&w, word, 4);
                            w |= c >> 4 << bit;
                            std::memcpy(word, &w, 4);
                        }
                    }
                }
            constexpr int words = f.main / 4;  // per step
            const int word = s * words, turn = word / 4;
            std::memcpy(out + turn * 512 + lane * 16 + word % 4 * 4, main, words * 4);
        }
}

template <TileFormat f>
void write_scale(float v, float d, std::byte* out) {
    if constexpr (f.factor())
        *out = static_cast<std::byte>(f.min ? factor_of(v, d) << byte_shift(f) : factor_of(v, d) + 128);
    else
        put16(out, f32_to_f16(v));
}

template <TileFormat f>
void write_scales(const Rows& r, int64_t col, std::byte* out) {
    for (int g = 0; g < 8; ++g)
        for (int half = 0; half < 2; ++half) {
            const int row = g + 8 * half;
            const int64_t first = row * r.groups + col / f.group, super = row * (r.cols / 256) + col / 256;
            const auto d = r.d[static_cast<size_t>(super)], dmin = r.dmin[static_cast<size_t>(super)];
            for (int i = 0; i < f.groups(); ++i, out += f.scale_bytes())
                write_scale<f>(r.scale[static_cast<size_t>(first + i)], d, out);
            for (int i = 0; f.min && i < f.groups(); ++i, out += f.scale_bytes())
                write_scale<f>(r.min[static_cast<size_t>(first + i)], dmin, out);
        }
}

template <TileFormat f>
void write_supers(const Rows& r, std::byte* out) {
    for (int64_t s = 0; s < r.cols / 256; ++s)
        for (int g = 0; g < 8; ++g)
            for (int half = 0; half < 2; ++half) {
                const auto at = static_cast<size_t>((g + 8 * half) * (r.cols / 256) + s);
                put16(out, f32_to_f16(r.d[at]));
                if (f.min) put16(out + 2, f32_to_f16(r.dmin[at]));
                out += f.min ? 4 : 2;
            }
}

template <class F>
void pack_block(const Tensor& w, int64_t block, std::byte* out) {
    constexpr TileFormat f = tile_format<F>();
    Rows r;
    r.cols = TileFormat::supers(w.cols) * 256;
    r.code.assign(static_cast<size_t>(16 * r.cols), static_cast<uint16_t>(f.zero));
    if constexpr (!f.real()) {
        r.groups = r.cols / f.group;
        r.scale.assign(static_cast<size_t>(16 * r.groups), 0);
        r.min = r.scale;
        r.d.assign(static_cast<size_t>(r.cols / 256 * 16), 0);
        r.dmin = r.d;
    }
    for (int row = 0; row < 16 && 16 * block + row < w.rows; ++row) {
        const std::byte* const data = w.row<std::byte>(16 * block + row);
        if constexpr (f.real()) r.factor[row] = unit_of_values<F>(data, w.cols);
        unpack_row<F, f>(data, w.cols, row, r);
        if constexpr (!f.real()) choose_unit<f>(row, r);
    }
    std::memset(out, 0, static_cast<size_t>(f.block_bytes(w.cols)));
    for (int64_t tile = 0; tile < TileFormat::tiles(w.cols); ++tile, out += f.tile_bytes()) {
        write_codes<f>(r, 64 * tile, out);
        if constexpr (!f.real()) write_scales<f>(r, 64 * tile, out + f.scales_at());
    }
    if constexpr (f.factor()) write_supers<f>(r, out);
    std::memcpy(out + TileFormat::supers(w.cols) * 8 * f.lane_super(), r.factor, sizeof r.factor);
}

}  // namespace

bool has_tiles(Type type) { return type != Type::f32 && info(type).decode; }

TileFormat tiles_of(Type type) {
    TileFormat found;
    visit_tile_format(type, [&]<TileFormat f>() { found = f; });
    return found;
}

TileTable table_of(Type type) {
    TileTable t;
    visit_format(type, [&]<class F>() {
        if constexpr (F::dot == DotClass::table)
            for (size_t i = 0; i < 16; ++i) t.level[i] = static_cast<float>(F::table[i]);
    });
    return t;
}

void pack_tiles(const Tensor& w, int64_t block, std::byte* out) {
    visit_format(w.type, [&]<class F>() { pack_block<F>(w, block, out); });
}

}  // namespace nibble::cuda
