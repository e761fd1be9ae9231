// Q2_K, Q4_K, Q5_K: superblocks of 256 with integer scales and minima per sub-block and two f16 factors.
// x = d * sc * q - dmin * mn. Sub-blocks of 16 with 4-bit sc/mn (Q2_K) or of 32 with 6-bit ones.
#pragma once

#include "ggml/types/codes.h"
#include "ggml/types/rounding.h"

namespace nibble {

// Eight pairs of 6-bit numbers in 12 bytes: byte j and j + 4 hold pair j < 4 in their low six bits; byte
// j + 8 holds the low nibbles of pair j + 4, whose upper two bits top bytes j and j + 4.
inline void pack_six_bits(const uint8_t* sc, const uint8_t* mn, uint8_t* out) {
    for (int j = 0; j < 4; ++j) {
        out[j] = static_cast<uint8_t>(sc[j] | sc[j + 4] >> 4 << 6);
        out[j + 4] = static_cast<uint8_t>(mn[j] | mn[j + 4] >> 4 << 6);
        out[j + 8] = static_cast<uint8_t>((sc[j + 4] & 15) | (mn[j + 4] & 15) << 4);
    }
}

inline void unpack_six_bits(const uint8_t* in, uint8_t* sc, uint8_t* mn) {
    for (int j = 0; j < 4; ++j) {
        sc[j] = in[j] & 63;
        mn[j] = in[j + 4] & 63;
        sc[j + 4] = static_cast<uint8_t>((in[j + 8] & 15) | in[j] >> 6 << 4);
        mn[j + 4] = static_cast<uint8_t>(in[j + 8] >> 4 | in[j + 4] >> 6 << 4);
    }
}

// Round to nearest for the three formats: range of each sub-block (with zero inside), integer scales and
// minima relative to the largest, then codes against the scales as they will be decoded.
template <class F>
void encode_k_min(const float* in, typename F::Block& b) {
    constexpr int groups = F::block_len / F::group;
    float scale[groups], min[groups];
    float max_scale = 0, max_min = 0;
    for (int g = 0; g < groups; ++g) {
        const Range r = min_max<F::group>(in + g * F::group);
        min[g] = r.lo < 0 ? -r.lo : 0;
        scale[g] = ((r.hi > 0 ? r.hi : 0) + min[g]) / F::top;
        max_scale = scale[g] > max_scale ? scale[g] : max_scale;
        max_min = min[g] > max_min ? min[g] : max_min;
    }
    const uint16_t d = f16_factor(max_scale / F::max_factor), dmin = f16_factor(max_min / F::max_factor);
    const float step = f16_to_f32(d), min_step = f16_to_f32(dmin);
    const float by_step = inverse_or_zero(step), by_min_step = inverse_or_zero(min_step);
    uint8_t q[F::block_len], sc[groups], mn[groups];
    for (int g = 0; g < groups; ++g) {
        const auto factor = [](float v) {
            return static_cast<uint8_t>(round_away(clamped(v, 0, F::max_factor)));
        };
        sc[g] = factor(scale[g] * by_step);
        mn[g] = factor(min[g] * by_min_step);
        offset_codes<F::group>(in + g * F::group, min_step * mn[g], inverse_or_zero(step * sc[g]), F::top,
                               q + g * F::group);
    }
    F::pack(q, sc, mn, d, dmin, b);
}

struct Q2_K {
    static constexpr Type type = Type::q2_k;
    static constexpr std::string_view name = "q2_k";
    static constexpr uint32_t block_len = 256, group = 16;
    static constexpr DotClass dot = DotClass::scaled_int_min;
    static constexpr int top = 3, max_factor = 15;  // largest code; largest sc and mn
    struct Block {
        uint8_t factors[16];  // sc low, mn high
        uint8_t q[64];        // element 128h + 32s + l: bits 2s of byte 32h + l
        uint16_t d, dmin;
    };
    static_assert(sizeof(Block) == 84);

    static void unpack(const Block& b, int8_t* q, float* scale, float* min) {
        for (int h = 0; h < 2; ++h)
            for (int s = 0; s < 4; ++s)
                for (int l = 0; l < 32; ++l)
                    q[128 * h + 32 * s + l] = static_cast<int8_t>(b.q[32 * h + l] >> (2 * s) & 3);
        const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
        for (int g = 0; g < 16; ++g) {
            scale[g] = d * static_cast<float>(b.factors[g] & 15);
            min[g] = -(dmin * static_cast<float>(b.factors[g] >> 4));
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<Q2_K>(b, out); }

    static void pack(const uint8_t* q, const uint8_t* sc, const uint8_t* mn, uint16_t d, uint16_t dmin,
                     Block& b) {
        b.d = d;
        b.dmin = dmin;
        for (int g = 0; g < 16; ++g) b.factors[g] = static_cast<uint8_t>(sc[g] | mn[g] << 4);
        for (int h = 0; h < 2; ++h, q += 128)
            for (int l = 0; l < 32; ++l)
                b.q[32 * h + l] =
                    static_cast<uint8_t>(q[l] | q[l + 32] << 2 | q[l + 64] << 4 | q[l + 96] << 6);
    }
    static void encode(const float* in, Block& b) { encode_k_min<Q2_K>(in, b); }
};

struct Q4_K {
    static constexpr Type type = Type::q4_k;
    static constexpr std::string_view name = "q4_k";
    static constexpr uint32_t block_len = 256, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int_min;
    static constexpr int top = 15, max_factor = 63;
    struct Block {
        uint16_t d, dmin;
        uint8_t factors[12];
        uint8_t q[128];  // four runs of 64 elements: the first 32 low, the others high
    };
    static_assert(sizeof(Block) == 144);

    static void unpack(const Block& b, int8_t* q, float* scale, float* min) {
        for (int r = 0; r < 4; ++r) unpack_nibbles<64>(b.q + 32 * r, q + 64 * r);
        uint8_t sc[8], mn[8];
        unpack_six_bits(b.factors, sc, mn);
        const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
        for (int g = 0; g < 8; ++g) {
            scale[g] = d * static_cast<float>(sc[g]);
            min[g] = -(dmin * static_cast<float>(mn[g]));
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<Q4_K>(b, out); }

    static void pack(const uint8_t* q, const uint8_t* sc, const uint8_t* mn, uint16_t d, uint16_t dmin,
                     Block& b) {
        b.d = d;
        b.dmin = dmin;
        pack_six_bits(sc, mn, b.factors);
        for (int r = 0; r < 4; ++r) pack_nibbles<64>(q + 64 * r, b.q + 32 * r);
    }
    static void encode(const float* in, Block& b) { encode_k_min<Q4_K>(in, b); }
};

struct Q5_K {
    static constexpr Type type = Type::q5_k;
    static constexpr std::string_view name = "q5_k";
    static constexpr uint32_t block_len = 256, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int_min;
    static constexpr int top = 31, max_factor = 63;
    struct Block {
        uint16_t d, dmin;
        uint8_t factors[12];
        uint8_t high[32];  // fifth bit of element 32g + l: bit g of byte l
        uint8_t q[128];
    };
    static_assert(sizeof(Block) == 176);

    static void unpack(const Block& b, int8_t* q, float* scale, float* min) {
        for (int g = 0; g < 8; ++g)
            for (int l = 0; l < 32; ++l) {
                const int low = b.q[32 * (g / 2) + l] >> (g % 2 * 4) & 15;
                q[32 * g + l] = static_cast<int8_t>(low | (b.high[l] >> g & 1) << 4);
            }
        uint8_t sc[8], mn[8];
        unpack_six_bits(b.factors, sc, mn);
        const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
        for (int g = 0; g < 8; ++g) {
            scale[g] = d * static_cast<float>(sc[g]);
            min[g] = -(dmin * static_cast<float>(mn[g]));
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<Q5_K>(b, out); }

    static void pack(const uint8_t* q, const uint8_t* sc, const uint8_t* mn, uint16_t d, uint16_t dmin,
                     Block& b) {
        b.d = d;
        b.dmin = dmin;
        pack_six_bits(sc, mn, b.factors);
        std::memset(b.high, 0, sizeof b.high);
        for (int g = 0; g < 8; ++g)
            for (int l = 0; l < 32; ++l)
                b.high[l] = static_cast<uint8_t>(b.high[l] | (q[32 * g + l] >> 4) << g);
        for (int r = 0; r < 4; ++r) pack_nibbles<64>(q + 64 * r, b.q + 32 * r);
    }
    static void encode(const float* in, Block& b) { encode_k_min<Q5_K>(in, b); }
};

}  // namespace nibble
