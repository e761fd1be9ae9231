// Q3_K and Q6_K: superblocks of 256, sixteen sub-blocks of 16 with signed integer scales, one f16 factor.
// x = d * s * q with q from -4..3 (Q3_K, 6-bit s) or -32..31 (Q6_K, 8-bit s).
#pragma once

#include "ggml/types/codes.h"
#include "ggml/types/rounding.h"

namespace nibble {

// Integer scales relative to the largest of them: s[g] = round(scale[g] / d). Returns d as f16.
template <int groups>
uint16_t relative_scales(const float* scale, int max_factor, int* s) {
    float largest = 0;
    for (int g = 0; g < groups; ++g) largest = std::fabs(scale[g]) > largest ? std::fabs(scale[g]) : largest;
    const float limit = static_cast<float>(max_factor);
    const uint16_t d = f16_factor(largest / limit);
    const float by_d = inverse_or_zero(f16_to_f32(d));
    for (int g = 0; g < groups; ++g) s[g] = round_away(clamped(scale[g] * by_d, -limit, limit));
    return d;
}

// Round to nearest: the value of largest magnitude of each sub-block becomes the lowest level.
template <class F>
void encode_k_signed(const float* in, typename F::Block& b) {
    constexpr int groups = F::block_len / F::group;
    float scale[groups];
    for (int g = 0; g < groups; ++g) scale[g] = signed_extreme<F::group>(in + g * F::group) / F::lo;
    int s[groups];
    const uint16_t d = relative_scales<groups>(scale, F::max_factor, s);
    uint8_t q[F::block_len];
    for (int g = 0; g < groups; ++g)
        signed_codes<F::group>(in + g * F::group, inverse_or_zero(f16_to_f32(d) * static_cast<float>(s[g])),
                               F::lo, F::hi, F::lo, q + g * F::group);
    F::pack(q, s, d, b);
}

struct Q3_K {
    static constexpr Type type = Type::q3_k;
    static constexpr std::string_view name = "q3_k";
    static constexpr uint32_t block_len = 256, group = 16;
    static constexpr DotClass dot = DotClass::scaled_int;
    static constexpr int lo = -4, hi = 3, min_factor = -32, max_factor = 31;
    struct Block {
        uint8_t high[32];     // bit 2 of the code q + 4 of element 32k + l: bit k of byte l
        uint8_t q[64];        // its lower bits; element 128h + 32s + l: bits 2s of byte 32h + l
        uint8_t factors[12];  // s + 32: low nibbles of s[g] and s[g + 8] in byte g, then upper pairs of bits
        uint16_t d;
    };
    static_assert(sizeof(Block) == 110);

    static float factor(int s) { return static_cast<float>(s); }
    static int nearest_factor(float ratio) { return round_away(clamped(ratio, min_factor, max_factor)); }
    static void unpack(const Block& b, int8_t* q, float* scale) {
        for (int k = 0; k < 8; ++k)
            for (int l = 0; l < 32; ++l) {
                const int low = b.q[32 * (k / 4) + l] >> (2 * (k % 4)) & 3;
                q[32 * k + l] = static_cast<int8_t>(low + (b.high[l] >> k & 1) * 4 - 4);
            }
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 16; ++g) {
            const int low = b.factors[g % 8] >> (g / 8 * 4) & 15;
            const int high = b.factors[8 + g % 4] >> (g / 4 * 2) & 3;
            scale[g] = d * static_cast<float>((low | high << 4) - 32);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<Q3_K>(b, out); }

    // q: level + 4; s: from min_factor..max_factor
    static void pack(const uint8_t* q, const int* s, uint16_t d, Block& b) {
        std::memset(&b, 0, sizeof b);
        b.d = d;
        for (int k = 0; k < 8; ++k)
            for (int l = 0; l < 32; ++l) {
                const int code = q[32 * k + l];
                uint8_t& low = b.q[32 * (k / 4) + l];
                low = static_cast<uint8_t>(low | (code & 3) << (2 * (k % 4)));
                b.high[l] = static_cast<uint8_t>(b.high[l] | (code >> 2) << k);
            }
        for (int g = 0; g < 16; ++g) {
            const int code = s[g] + 32;
            uint8_t &low = b.factors[g % 8], &high = b.factors[8 + g % 4];
            low = static_cast<uint8_t>(low | (code & 15) << (g / 8 * 4));
            high = static_cast<uint8_t>(high | (code >> 4) << (g / 4 * 2));
        }
    }
    static void encode(const float* in, Block& b) { encode_k_signed<Q3_K>(in, b); }
};

struct Q6_K {
    static constexpr Type type = Type::q6_k;
    static constexpr std::string_view name = "q6_k";
    static constexpr uint32_t block_len = 256, group = 16;
    static constexpr DotClass dot = DotClass::scaled_int;
    static constexpr int lo = -32, hi = 31, min_factor = -128, max_factor = 127;
    struct Block {
        uint8_t low[128];  // code q + 32: its low nibble for element 128h + 64s + k: nibble s of byte 64h + k
        uint8_t high[64];  // its upper bits for element 128h + 32t + l: bits 2t of byte 32h + l
        int8_t s[16];
        uint16_t d;
    };
    static_assert(sizeof(Block) == 210);

    static float factor(int s) { return static_cast<float>(s); }
    static int nearest_factor(float ratio) { return round_away(clamped(ratio, min_factor, max_factor)); }
    static void unpack(const Block& b, int8_t* q, float* scale) {
        for (int k = 0; k < 8; ++k)
            for (int l = 0; l < 32; ++l) {
                const int low = b.low[64 * (k / 4) + 32 * (k % 2) + l] >> (k % 4 / 2 * 4) & 15;
                const int high = b.high[32 * (k / 4) + l] >> (2 * (k % 4)) & 3;
                q[32 * k + l] = static_cast<int8_t>((low | high << 4) - 32);
            }
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 16; ++g) scale[g] = d * static_cast<float>(b.s[g]);
    }
    static void decode(const Block& b, float* out) { decode_codes<Q6_K>(b, out); }

    static void pack(const uint8_t* q, const int* s, uint16_t d, Block& b) {
        b.d = d;
        for (int g = 0; g < 16; ++g) b.s[g] = static_cast<int8_t>(s[g]);
        for (int h = 0; h < 2; ++h, q += 128) {
            pack_nibbles<128>(q, b.low + 64 * h);
            for (int l = 0; l < 32; ++l)
                b.high[32 * h + l] = static_cast<uint8_t>(q[l] >> 4 | q[l + 32] >> 4 << 2 |
                                                          q[l + 64] >> 4 << 4 | q[l + 96] >> 4 << 6);
        }
    }
    static void encode(const float* in, Block& b) { encode_k_signed<Q6_K>(in, b); }
};

}  // namespace nibble
