// Q4_0, Q4_1, Q5_0, Q5_1: blocks of 32 with an f16 scale, the _1 kinds with an f16 minimum as well.
// Rounding as GGUF's reference defines it; element j is the low nibble of byte j, j + 16 the high one.
#pragma once

#include "ggml/types/codes.h"
#include "ggml/types/rounding.h"

namespace nibble {

// The fifth bits of 32 codes: bit j of the little-endian word belongs to element j.
inline void pack_fifth_bits(const uint8_t* q, uint8_t* out) {
    for (int k = 0; k < 4; ++k) {
        int byte = 0;
        for (int j = 0; j < 8; ++j) byte |= (q[8 * k + j] >> 4 & 1) << j;
        out[k] = static_cast<uint8_t>(byte);
    }
}

// 32 codes of a nibble and a fifth bit, less `zero`. Of two bytes of fifth bits, each repeated, every code
// keeps its own.
template <uint8_t zero>
void unpack_fifth_bits(const uint8_t* high, const uint8_t* in, int8_t* q) {
    unpack_nibbles<32>(in, q, [high](u8x16 codes, int i) {
        constexpr u8x16 first{1, 2, 4, 8, 16, 32, 64, 128},
            second{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128};
        const u8x16 bits = (first & high[i / 8]) | (second & high[i / 8 + 1]);
        return (codes | (u8x16(bits != 0) & 16)) - zero;
    });
}

// x = d * (q - 8). The scale's sign lets the value of largest magnitude be -8 exactly.
struct Q4_0 {
    static constexpr Type type = Type::q4_0;
    static constexpr std::string_view name = "q4_0";
    static constexpr uint32_t block_len = 32, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int;
    static constexpr int lo = -8, hi = 7;  // levels; the stored code is level - lo
    struct Block {
        uint16_t d;
        uint8_t q[16];
    };
    static_assert(sizeof(Block) == 18);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        unpack_nibbles<32>(b.q, q, [](u8x16 codes, int) { return codes - 8; });
        *scale = f16_to_f32(b.d);
    }
    static void decode(const Block& b, float* out) { decode_codes<Q4_0>(b, out); }

    static float snap(float scale) { return f16_to_f32(f16_scale(scale)); }
    static void pack(const uint8_t* q, const float* scale, Block& b) {
        b.d = f16_scale(*scale);
        pack_nibbles<32>(q, b.q);
    }
    static void encode(const float* in, Block& b) {
        const float d = signed_extreme<32>(in) / -8;
        uint8_t q[32];
        floor_codes<32>(in, inverse_or_zero(d), 8.5f, 15, q);
        pack(q, &d, b);
    }
};

// x = d * q + m
struct Q4_1 {
    static constexpr Type type = Type::q4_1;
    static constexpr std::string_view name = "q4_1";
    static constexpr uint32_t block_len = 32, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int_min;
    static constexpr int top = 15;  // largest code
    struct Block {
        uint16_t d, m;
        uint8_t q[16];
    };
    static_assert(sizeof(Block) == 20);

    static void unpack(const Block& b, int8_t* q, float* scale, float* min) {
        unpack_nibbles<32>(b.q, q);
        *scale = f16_to_f32(b.d);
        *min = f16_to_f32(b.m);
    }
    static void decode(const Block& b, float* out) { decode_codes<Q4_1>(b, out); }

    static void pack(const uint8_t* q, float scale, float min, Block& b) {
        b.d = f16_scale(scale);
        b.m = f16_scale(min);
        pack_nibbles<32>(q, b.q);
    }
    static void encode(const float* in, Block& b) {
        const Range r = min_max<32>(in);
        const float d = (r.hi - r.lo) / 15;
        uint8_t q[32];
        offset_codes<32>(in, -r.lo, inverse_or_zero(d), 15, q);
        pack(q, d, r.lo, b);
    }
};

// x = d * (q - 16)
struct Q5_0 {
    static constexpr Type type = Type::q5_0;
    static constexpr std::string_view name = "q5_0";
    static constexpr uint32_t block_len = 32, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int;
    static constexpr int lo = -16, hi = 15;
    struct Block {
        uint16_t d;
        uint8_t high[4];  // fifth bits
        uint8_t q[16];
    };
    static_assert(sizeof(Block) == 22);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        unpack_fifth_bits<16>(b.high, b.q, q);
        *scale = f16_to_f32(b.d);
    }
    static void decode(const Block& b, float* out) { decode_codes<Q5_0>(b, out); }

    static float snap(float scale) { return f16_to_f32(f16_scale(scale)); }
    static void pack(const uint8_t* q, const float* scale, Block& b) {
        b.d = f16_scale(*scale);
        pack_fifth_bits(q, b.high);
        pack_nibbles<32>(q, b.q);
    }
    static void encode(const float* in, Block& b) {
        const float d = signed_extreme<32>(in) / -16;
        uint8_t q[32];
        floor_codes<32>(in, inverse_or_zero(d), 16.5f, 31, q);
        pack(q, &d, b);
    }
};

// x = d * q + m
struct Q5_1 {
    static constexpr Type type = Type::q5_1;
    static constexpr std::string_view name = "q5_1";
    static constexpr uint32_t block_len = 32, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int_min;
    static constexpr int top = 31;
    struct Block {
        uint16_t d, m;
        uint8_t high[4];
        uint8_t q[16];
    };
    static_assert(sizeof(Block) == 24);

    static void unpack(const Block& b, int8_t* q, float* scale, float* min) {
        unpack_fifth_bits<0>(b.high, b.q, q);
        *scale = f16_to_f32(b.d);
        *min = f16_to_f32(b.m);
    }
    static void decode(const Block& b, float* out) { decode_codes<Q5_1>(b, out); }

    static void pack(const uint8_t* q, float scale, float min, Block& b) {
        b.d = f16_scale(scale);
        b.m = f16_scale(min);
        pack_fifth_bits(q, b.high);
        pack_nibbles<32>(q, b.q);
    }
    static void encode(const float* in, Block& b) {
        const Range r = min_max<32>(in);
        const float d = (r.hi - r.lo) / 31;
        uint8_t q[32];
        offset_codes<32>(in, -r.lo, inverse_or_zero(d), 31, q);
        pack(q, d, r.lo, b);
    }
};

}  // namespace nibble
