// MXFP4 and NVFP4: E2M1 elements, sixteen values in a table. The table is doubled to be integers, so the
// scales are halved. MXFP4 (OCP Microscaling 1.0): a power of two per 32. NVFP4: a UE4M3 number per 16.
//
// NVFP4 files carry one more factor per tensor in a sibling tensor "….scale"; it is not part of the block.
#pragma once

#include <bit>

#include "ggml/types/codes.h"
#include "ggml/types/rounding.h"

namespace nibble {

inline constexpr std::array<int8_t, 16> e2m1_doubled = {0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};
inline constexpr std::array<float, 15> e2m1_ascending = {-12, -8, -6, -4, -3, -2, -1, 0,
                                                         1,   2,  3,  4,  6,  8,  12};

// Code of a place in e2m1_ascending.
inline uint8_t e2m1_code(int place) { return static_cast<uint8_t>(place < 7 ? 15 - place : place - 7); }

// Code of the nearest value of v; halfway cases go to the smaller magnitude, negative zero is not produced.
template <int n>
void e2m1_codes(const float* x, float inverse, uint8_t* q) {
    constexpr float mid[] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
    for (int i = 0; i < n; i += 4) {
        f32x4 v;
        std::memcpy(&v, x + i, sizeof v);
        v *= inverse;
        const f32x4 magnitude = v < 0 ? -v : v;
        i32x4 code = (v < -0.5f) & 8;
        for (const float m : mid) code -= magnitude > f32x4{} + m;  // true is -1
        const u8x4 bytes = __builtin_convertvector(code, u8x4);
        std::memcpy(q + i, &bytes, sizeof bytes);
    }
}

struct MXFP4 {
    static constexpr Type type = Type::mxfp4;
    static constexpr std::string_view name = "mxfp4";
    static constexpr uint32_t block_len = 32, group = 32;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = e2m1_doubled;
    static constexpr auto& levels = e2m1_ascending;
    struct Block {
        uint8_t e;
        uint8_t q[16];
    };
    static_assert(sizeof(Block) == 17);
    static constexpr int min_code = 0, max_code = 254;

    // 2^(e - 128): half of the E8M0 number, because the table is doubled.
    static float scale_of(int e) {
        const auto n = static_cast<uint32_t>(e);
        return std::bit_cast<float>(n < 2 ? 0x00200000u << n : (n - 1) << 23);
    }
    // The largest representable scale that is not above `scale`.
    static int scale_code(float scale) {
        const int biased = static_cast<int>(std::bit_cast<uint32_t>(scale) >> 23);
        return biased + 1 < max_code ? biased + 1 : max_code;
    }
    static void unpack(const Block& b, int8_t* q, float* scale) {
        unpack_nibbles<32>(b.q, q);
        *scale = scale_of(b.e);
    }
    static void decode(const Block& b, float* out) { decode_codes<MXFP4>(b, out); }

    static void pack(const uint8_t* q, const int* code, Block& b) {
        b.e = static_cast<uint8_t>(*code);
        pack_nibbles<32>(q, b.q);
    }
    // The binade of the largest magnitude is mapped to 4..6, the top one of E2M1; what is above 6 saturates.
    static void encode(const float* in, Block& b) {
        const int biased = static_cast<int>(std::bit_cast<uint32_t>(max_abs<32>(in)) >> 23);
        const int e = biased > 2 ? biased - 2 : 0;
        uint8_t q[32];
        e2m1_codes<32>(in, inverse_or_zero(scale_of(e)), q);
        pack(q, &e, b);
    }
};

// Magnitudes below 2^-10 of the format's range are lost: scale the tensor by its factor before encoding.
struct NVFP4 {
    static constexpr Type type = Type::nvfp4;
    static constexpr std::string_view name = "nvfp4";
    static constexpr uint32_t block_len = 64, group = 16;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = e2m1_doubled;
    static constexpr auto& levels = e2m1_ascending;
    struct Block {
        uint8_t s[4];   // UE4M3, bias 7; 0x7f is read as 0
        uint8_t q[32];  // eight bytes per sub-block: element j low, j + 8 high
    };
    static_assert(sizeof(Block) == 36);
    static constexpr int min_code = 0, max_code = 0x7e;

    // Half of the UE4M3 number, because the table is doubled.
    static float scale_of(int code) {
        const int exponent = code >> 3 & 15, mantissa = code & 7;
        if (code == 0x7f) return 0;
        if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
        const auto bits = static_cast<uint32_t>((exponent + 127 - 8) << 3 | mantissa) << 20;
        return std::bit_cast<float>(bits);
    }
    // The nearest representable scale.
    static int scale_code(float scale) {
        if (!(scale > 0)) return 0;
        if (scale >= 224) return max_code;
        if (scale < 0x1p-7f) return static_cast<int>(scale * 0x1p10f + 0.5f);
        return static_cast<int>((std::bit_cast<uint32_t>(scale) + (1u << 19)) >> 20) - ((127 - 8) << 3);
    }
    static void unpack(const Block& b, int8_t* q, float* scale) {
        for (int g = 0; g < 4; ++g) {
            constexpr uint64_t low_nibbles = 0x0f0f0f0f0f0f0f0f;
            uint64_t codes;
            std::memcpy(&codes, b.q + 8 * g, sizeof codes);
            const uint64_t runs[2] = {codes & low_nibbles, codes >> 4 & low_nibbles};
            std::memcpy(q + 16 * g, runs, sizeof runs);
            scale[g] = scale_of(b.s[g]);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<NVFP4>(b, out); }

    static void pack(const uint8_t* q, const int* code, Block& b) {
        for (int g = 0; g < 4; ++g) {
            b.s[g] = static_cast<uint8_t>(code[g]);
            pack_nibbles<16>(q + 16 * g, b.q + 8 * g);
        }
    }
    static void encode(const float* in, Block& b) {
        uint8_t q[64];
        int code[4];
        for (int g = 0; g < 4; ++g) {
            code[g] = scale_code(max_abs<16>(in + 16 * g) / 12);
            e2m1_codes<16>(in + 16 * g, inverse_or_zero(scale_of(code[g])), q + 16 * g);
        }
        pack(q, code, b);
    }
};

}  // namespace nibble
