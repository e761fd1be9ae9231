// IQ4_NL and IQ4_XS: 4-bit codes into one table of sixteen unevenly spaced integers.
// IQ4_NL: blocks of 32 with an f16 scale. IQ4_XS: superblocks of 256, 6-bit scales per 32, an f16 factor.
#pragma once

#include "ggml/types/codes.h"
#include "ggml/types/k_signed.h"
#include "ggml/types/rounding.h"

namespace nibble {

inline constexpr std::array<int8_t, 16> iq4_levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::array<float, 16> iq4_levels_f32 = [] {
    std::array<float, 16> f{};
    for (size_t i = 0; i < 16; ++i) f[i] = iq4_levels[i];
    return f;
}();
inline constexpr auto iq4_mid = midpoints(iq4_levels_f32);

struct IQ4_NL {
    static constexpr Type type = Type::iq4_nl;
    static constexpr std::string_view name = "iq4_nl";
    static constexpr uint32_t block_len = 32, group = 32;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = iq4_levels;
    static constexpr auto& levels = iq4_levels_f32;  // ascending
    struct Block {
        uint16_t d;
        uint8_t q[16];
    };
    static_assert(sizeof(Block) == 18);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        unpack_nibbles<32>(b.q, q);
        *scale = f16_to_f32(b.d);
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ4_NL>(b, out); }

    static float snap(float scale) { return f16_to_f32(f16_scale(scale)); }
    static void pack(const uint8_t* q, const float* scale, Block& b) {
        b.d = f16_scale(*scale);
        pack_nibbles<32>(q, b.q);
    }
    // The value of largest magnitude becomes the lowest level.
    static void encode(const float* in, Block& b) {
        const float d = signed_extreme<32>(in) / levels[0];
        uint8_t q[32];
        level_codes<32>(in, inverse_or_zero(d), iq4_mid, q);
        pack(q, &d, b);
    }
};

struct IQ4_XS {
    static constexpr Type type = Type::iq4_xs;
    static constexpr std::string_view name = "iq4_xs";
    static constexpr uint32_t block_len = 256, group = 32;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = iq4_levels;
    static constexpr auto& levels = iq4_levels_f32;
    static constexpr int min_factor = -32, max_factor = 31;
    struct Block {
        uint16_t d;
        uint16_t high;   // upper two bits of s[g] + 32 at bit 2g
        uint8_t low[4];  // low nibbles, even g low
        uint8_t q[128];  // sixteen bytes per sub-block, halves as in IQ4_NL
    };
    static_assert(sizeof(Block) == 136);

    static float factor(int s) { return static_cast<float>(s); }
    static int nearest_factor(float ratio) { return round_away(clamped(ratio, min_factor, max_factor)); }
    static void unpack(const Block& b, int8_t* q, float* scale) {
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 8; ++g) {
            unpack_nibbles<32>(b.q + 16 * g, q + 32 * g);
            const int low = b.low[g / 2] >> (g % 2 * 4) & 15, high = b.high >> (2 * g) & 3;
            scale[g] = d * static_cast<float>((low | high << 4) - 32);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ4_XS>(b, out); }

    static void pack(const uint8_t* q, const int* s, uint16_t d, Block& b) {
        int high = 0, low[8];
        for (int g = 0; g < 8; ++g) {
            pack_nibbles<32>(q + 32 * g, b.q + 16 * g);
            low[g] = (s[g] + 32) & 15;
            high |= (s[g] + 32) >> 4 << (2 * g);
        }
        for (int k = 0; k < 4; ++k) b.low[k] = static_cast<uint8_t>(low[2 * k] | low[2 * k + 1] << 4);
        b.high = static_cast<uint16_t>(high);
        b.d = d;
    }
    static void encode(const float* in, Block& b) {
        float scale[8];
        for (int g = 0; g < 8; ++g) scale[g] = signed_extreme<32>(in + 32 * g) / levels[0];
        int s[8];
        const uint16_t d = relative_scales<8>(scale, max_factor, s);
        uint8_t q[256];
        for (int g = 0; g < 8; ++g)
            level_codes<32>(in + 32 * g, inverse_or_zero(f16_to_f32(d) * static_cast<float>(s[g])), iq4_mid,
                            q + 32 * g);
        pack(q, s, d, b);
    }
};

}  // namespace nibble
