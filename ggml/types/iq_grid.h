// The IQ2, IQ3 and IQ1 formats, read only: superblocks of 256 whose elements come four or eight at a time
// from a grid, times signs and small scales. All lower to 8-bit codes times a scale per 16 or 32 elements.
#pragma once

#include "ggml/types/codes.h"
#include "ggml/types/float16.h"
#include "ggml/types/iq_tables.h"

namespace nibble {

// Eight elements of a two-bit grid entry; bit j of signs negates element j.
inline void grid8(uint16_t entry, unsigned signs, int8_t* q) {
    constexpr int8_t value[4] = {8, 25, 43, 0};
    for (int j = 0; j < 8; ++j) {
        const int v = value[entry >> (2 * j) & 3];
        q[j] = static_cast<int8_t>(signs >> j & 1 ? -v : v);
    }
}

// Four elements of a three-bit grid entry with this list of values.
inline void grid4(uint16_t entry, unsigned signs, const int8_t* value, int8_t* q) {
    for (int j = 0; j < 4; ++j) {
        const int v = value[entry >> (3 * j) & 7];
        q[j] = static_cast<int8_t>(signs >> j & 1 ? -v : v);
    }
}

// Seven sign bits and an eighth that makes the number of minus signs even.
inline unsigned even_signs(unsigned seven) {
    const unsigned folded = seven ^ seven >> 4, parity = 0x6996u >> (folded & 15) & 1;
    return seven | parity << 7;
}

inline uint32_t word_at(const uint8_t* p) {
    return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
           static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
}

struct IQ2_XXS {
    static constexpr Type type = Type::iq2_xxs;
    static constexpr std::string_view name = "iq2_xxs";
    static constexpr uint32_t block_len = 256, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint16_t d;
        uint8_t q[64];  // per 32: four grid indices, then four times seven signs and a 4-bit scale on top
    };
    static_assert(sizeof(Block) == 66);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 8; ++g) {
            const uint8_t* in = b.q + 8 * g;
            const uint32_t word = word_at(in + 4);
            scale[g] = d * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
            for (int k = 0; k < 4; ++k)
                grid8(iq2_xxs_grid[in[k]], even_signs(word >> (7 * k) & 127), q + 32 * g + 8 * k);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ2_XXS>(b, out); }
};

struct IQ2_XS {
    static constexpr Type type = Type::iq2_xs;
    static constexpr std::string_view name = "iq2_xs";
    static constexpr uint32_t block_len = 256, group = 16;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint16_t d;
        uint16_t q[32];      // nine bits of grid index, seven signs
        uint8_t factors[8];  // two 4-bit scales per 32
    };
    static_assert(sizeof(Block) == 74);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 16; ++g) {
            const int factor = b.factors[g / 2] >> (g % 2 * 4) & 15;
            scale[g] = d * (0.5f + static_cast<float>(factor)) * 0.25f;
        }
        for (int k = 0; k < 32; ++k) grid8(iq2_xs_grid[b.q[k] & 511], even_signs(b.q[k] >> 9), q + 8 * k);
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ2_XS>(b, out); }
};

struct IQ2_S {
    static constexpr Type type = Type::iq2_s;
    static constexpr std::string_view name = "iq2_s";
    static constexpr uint32_t block_len = 256, group = 16;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint16_t d;
        uint8_t q[32];       // low bytes of the grid indices
        uint8_t signs[32];   // one bit per element
        uint8_t high[8];     // upper two bits of four indices each
        uint8_t factors[8];  // two 4-bit scales per 32
    };
    static_assert(sizeof(Block) == 82);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 16; ++g) {
            const int factor = b.factors[g / 2] >> (g % 2 * 4) & 15;
            scale[g] = d * (0.5f + static_cast<float>(factor)) * 0.25f;
        }
        for (int k = 0; k < 32; ++k) {
            const unsigned high = b.high[k / 4] >> (k % 4 * 2) & 3;
            grid8(iq2_s_grid[b.q[k] | high << 8], b.signs[k], q + 8 * k);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ2_S>(b, out); }
};

struct IQ3_XXS {
    static constexpr Type type = Type::iq3_xxs;
    static constexpr std::string_view name = "iq3_xxs";
    static constexpr uint32_t block_len = 256, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint16_t d;
        uint8_t q[64];        // grid indices, four elements each
        uint8_t factors[32];  // per 32 a word: four times seven signs and a 4-bit scale on top
    };
    static_assert(sizeof(Block) == 98);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        constexpr int8_t value[8] = {4, 12, 20, 28, 36, 44, 52, 62};
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 8; ++g) {
            const uint32_t word = word_at(b.factors + 4 * g);
            scale[g] = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
            for (int k = 0; k < 8; ++k) {
                const unsigned signs = even_signs(word >> (k / 2 * 7) & 127) >> (k % 2 * 4);
                grid4(iq3_xxs_grid[b.q[8 * g + k]], signs, value, q + 32 * g + 4 * k);
            }
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ3_XXS>(b, out); }
};

struct IQ3_S {
    static constexpr Type type = Type::iq3_s;
    static constexpr std::string_view name = "iq3_s";
    static constexpr uint32_t block_len = 256, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint16_t d;
        uint8_t q[64];       // low bytes of the grid indices, four elements each
        uint8_t high[8];     // ninth bits, eight indices each
        uint8_t signs[32];   // one bit per element
        uint8_t factors[4];  // two 4-bit scales
    };
    static_assert(sizeof(Block) == 110);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        constexpr int8_t value[8] = {1, 3, 5, 7, 9, 11, 13, 15};
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 8; ++g)
            scale[g] = d * static_cast<float>(1 + 2 * (b.factors[g / 2] >> (g % 2 * 4) & 15));
        for (int k = 0; k < 64; ++k) {
            const unsigned high = b.high[k / 8] >> (k % 8) & 1;
            grid4(iq3_s_grid[b.q[k] | high << 8], b.signs[k / 2] >> (k % 2 * 4), value, q + 4 * k);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ3_S>(b, out); }
};

// Elements of IQ1 are -1, 0 or 1 plus or minus an eighth; codes are eight times that, scales an eighth.
inline void ternary8(uint16_t entry, bool minus, int8_t* q) {
    for (int j = 0; j < 8; ++j)
        q[j] = static_cast<int8_t>(8 * ((entry >> (2 * j) & 3) - 1) + (minus ? -1 : 1));
}

struct IQ1_S {
    static constexpr Type type = Type::iq1_s;
    static constexpr std::string_view name = "iq1_s";
    static constexpr uint32_t block_len = 256, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint16_t d;
        uint8_t q[32];     // low bytes of the grid indices
        uint16_t high[8];  // per 32: four times three upper bits, a 3-bit scale, the sign of the eighth
    };
    static_assert(sizeof(Block) == 50);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 8; ++g) {
            const int word = b.high[g];
            scale[g] = d * static_cast<float>(2 * (word >> 12 & 7) + 1) * 0.125f;
            for (int k = 0; k < 4; ++k) {
                const int index = b.q[4 * g + k] | (word >> (3 * k) & 7) << 8;
                ternary8(iq1_grid[static_cast<size_t>(index)], word >> 15, q + 32 * g + 8 * k);
            }
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ1_S>(b, out); }
};

struct IQ1_M {
    static constexpr Type type = Type::iq1_m;
    static constexpr std::string_view name = "iq1_m";
    static constexpr uint32_t block_len = 256, group = 16;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint8_t q[32];        // low bytes of the grid indices
        uint8_t high[16];     // per eight elements a nibble: three upper bits, the sign of the eighth
        uint16_t factors[4];  // four 3-bit scales each; the upper nibbles are the f16 d, lowest first
    };
    static_assert(sizeof(Block) == 56);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        int d16 = 0;
        for (int k = 0; k < 4; ++k) d16 |= b.factors[k] >> 12 << (4 * k);
        const float d = f16_to_f32(static_cast<uint16_t>(d16));
        for (int g = 0; g < 16; ++g)
            scale[g] = d * static_cast<float>(2 * (b.factors[g / 4] >> (g % 4 * 3) & 7) + 1) * 0.125f;
        for (int k = 0; k < 32; ++k) {
            const int nibble = b.high[k / 2] >> (k % 2 * 4);
            const int index = b.q[k] | (nibble & 7) << 8;
            ternary8(iq1_grid[static_cast<size_t>(index)], nibble & 8, q + 8 * k);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ1_M>(b, out); }
};

}  // namespace nibble
