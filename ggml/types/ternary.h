// TQ1_0, TQ2_0 (ternary, 256 elements), Q1_0 (signs, 128) and Q2_0 (two bits, 64): one f16 scale per block.
// TQ1_0 packs five base-3 digits into a byte as a fraction of 256; the others are plain bit fields.
#pragma once

#include "ggml/types/codes.h"
#include "ggml/types/rounding.h"

namespace nibble {

// Base-3 digits of TQ1_0: element i is digit (counted from the most significant) of a byte.
struct DigitPlace {
    uint8_t byte, digit;
};
inline constexpr std::array<DigitPlace, 256> tq1_places = [] {
    std::array<DigitPlace, 256> p{};
    for (int i = 0; i < 256; ++i) {
        if (i < 160)
            p[static_cast<size_t>(i)] = {static_cast<uint8_t>(i % 32), static_cast<uint8_t>(i / 32)};
        else if (i < 240)
            p[static_cast<size_t>(i)] = {static_cast<uint8_t>(32 + i % 16),
                                         static_cast<uint8_t>((i - 160) / 16)};
        else
            p[static_cast<size_t>(i)] = {static_cast<uint8_t>(48 + i % 4),
                                         static_cast<uint8_t>((i - 240) / 4)};
    }
    return p;
}();

struct TQ1_0 {
    static constexpr Type type = Type::tq1_0;
    static constexpr std::string_view name = "tq1_0";
    static constexpr uint32_t block_len = 256, group = 256;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint8_t q[52];  // five digits each, the last four bytes four
        uint16_t d;
    };
    static_assert(sizeof(Block) == 54);

    // The byte is ceil(n * 256 / 243) of the five-digit number n: multiplying by 3^digit modulo 256 drops
    // the digits above, and the wanted one is then the integer part of three times the fraction.
    static void unpack(const Block& b, int8_t* q, float* scale) {
        constexpr int power[5] = {1, 3, 9, 27, 81};
        for (size_t i = 0; i < 256; ++i) {
            const int rest = b.q[tq1_places[i].byte] * power[tq1_places[i].digit] & 255;
            q[i] = static_cast<int8_t>((rest * 3 >> 8) - 1);
        }
        *scale = f16_to_f32(b.d);
    }
    static void decode(const Block& b, float* out) { decode_codes<TQ1_0>(b, out); }

    static void encode(const float* in, Block& b) {
        constexpr int value[5] = {81, 27, 9, 3, 1};
        const float d = max_abs<256>(in);
        uint8_t q[256];
        signed_codes<256>(in, inverse_or_zero(d), -1, 1, -1, q);
        int number[52] = {};
        for (size_t i = 0; i < 256; ++i) number[tq1_places[i].byte] += q[i] * value[tq1_places[i].digit];
        for (int k = 0; k < 52; ++k) b.q[k] = static_cast<uint8_t>((number[k] * 256 + 242) / 243);
        b.d = f16_scale(d);
    }
};

struct TQ2_0 {
    static constexpr Type type = Type::tq2_0;
    static constexpr std::string_view name = "tq2_0";
    static constexpr uint32_t block_len = 256, group = 256;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint8_t q[64];  // element 128h + 32s + l: bits 2s of byte 32h + l, value + 1
        uint16_t d;
    };
    static_assert(sizeof(Block) == 66);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        for (int h = 0; h < 2; ++h)
            for (int s = 0; s < 4; ++s)
                for (int l = 0; l < 32; ++l)
                    q[128 * h + 32 * s + l] = static_cast<int8_t>((b.q[32 * h + l] >> (2 * s) & 3) - 1);
        *scale = f16_to_f32(b.d);
    }
    static void decode(const Block& b, float* out) { decode_codes<TQ2_0>(b, out); }

    static void encode(const float* in, Block& b) {
        const float d = max_abs<256>(in);
        uint8_t codes[256];
        signed_codes<256>(in, inverse_or_zero(d), -1, 1, -1, codes);
        const uint8_t* q = codes;
        for (int h = 0; h < 2; ++h, q += 128)
            for (int l = 0; l < 32; ++l)
                b.q[32 * h + l] =
                    static_cast<uint8_t>(q[l] | q[l + 32] << 2 | q[l + 64] << 4 | q[l + 96] << 6);
        b.d = f16_scale(d);
    }
};

// x = +d or -d
struct Q1_0 {
    static constexpr Type type = Type::q1_0;
    static constexpr std::string_view name = "q1_0";
    static constexpr uint32_t block_len = 128, group = 128;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint16_t d;
        uint8_t bits[16];  // element j: bit j % 8 of byte j / 8, set for +d
    };
    static_assert(sizeof(Block) == 18);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        for (int j = 0; j < 128; ++j) q[j] = static_cast<int8_t>((b.bits[j / 8] >> (j % 8) & 1) * 2 - 1);
        *scale = f16_to_f32(b.d);
    }
    static void decode(const Block& b, float* out) { decode_codes<Q1_0>(b, out); }

    // The mean magnitude is the scale of least squared error.
    static void encode(const float* in, Block& b) {
        float sum = 0;
        for (int j = 0; j < 128; ++j) sum += std::fabs(in[j]) / 128;
        b.d = f16_scale(sum);
        for (int k = 0; k < 16; ++k) {
            int byte = 0;
            for (int j = 0; j < 8; ++j) byte |= (in[8 * k + j] >= 0) << j;
            b.bits[k] = static_cast<uint8_t>(byte);
        }
    }
};

// x = d * (q - 1): -d, 0, d and a fourth level 2d that ternary models leave unused.
struct Q2_0 {
    static constexpr Type type = Type::q2_0;
    static constexpr std::string_view name = "q2_0";
    static constexpr uint32_t block_len = 64, group = 64;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint16_t d;
        uint8_t q[16];  // element j: bits 2 (j % 4) of byte j / 4
    };
    static_assert(sizeof(Block) == 18);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        for (int j = 0; j < 64; ++j) q[j] = static_cast<int8_t>((b.q[j / 4] >> (j % 4 * 2) & 3) - 1);
        *scale = f16_to_f32(b.d);
    }
    static void decode(const Block& b, float* out) { decode_codes<Q2_0>(b, out); }

    static void encode(const float* in, Block& b) {
        const float d = max_abs<64>(in);
        uint8_t q[64];
        signed_codes<64>(in, inverse_or_zero(d), -1, 1, -1, q);
        for (int k = 0; k < 16; ++k)
            b.q[k] =
                static_cast<uint8_t>(q[4 * k] | q[4 * k + 1] << 2 | q[4 * k + 2] << 4 | q[4 * k + 3] << 6);
        b.d = f16_scale(d);
    }
};

}  // namespace nibble
