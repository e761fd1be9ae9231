// IQ2, IQ3 and IQ1, read only: superblocks of 256 whose elements come four or eight at a time from a grid,
// times signs and small scales. A code is a place in the format's list of values with their signs.
#pragma once

#include <cstring>

#include "ggml/types/codes.h"
#include "ggml/types/float16.h"
#include "ggml/types/iq_tables.h"

namespace nibble {

// A byte for each element of a grid's entries, the first one lowest: entries have them in `bits` each.
template <class Word, int bits, size_t n>
constexpr std::array<Word, n> in_bytes(const std::array<uint16_t, n>& grid, int factor = 1) {
    std::array<Word, n> words{};
    for (size_t i = 0; i < n; ++i)
        for (size_t j = 0; j < sizeof(Word); ++j) {
            const int code = (grid[i] >> (bits * j) & ((1 << bits) - 1)) * factor;
            words[i] |= static_cast<Word>(code) << (8 * j);
        }
    return words;
}

// A byte of 1 for each bit that is set.
inline constexpr std::array<uint64_t, 256> bits_in_bytes = [] {
    std::array<uint64_t, 256> words{};
    for (size_t i = 0; i < 256; ++i)
        for (size_t j = 0; j < 8; ++j) words[i] |= uint64_t{i >> j & 1} << (8 * j);
    return words;
}();

// Seven sign bits and an eighth that makes the number of minus signs even.
inline constexpr std::array<uint8_t, 128> even_signs = [] {
    std::array<uint8_t, 128> signs{};
    for (unsigned i = 0; i < 128; ++i)
        signs[i] =
            static_cast<uint8_t>(i | (i ^ i >> 1 ^ i >> 2 ^ i >> 3 ^ i >> 4 ^ i >> 5 ^ i >> 6) % 2 << 7);
    return signs;
}();

// Eight codes: those of the grid, of which bit j of `signs` negates the j-th by the bit above the others.
template <int sign_bit>
inline void write_codes(uint64_t codes, unsigned signs, int8_t* q) {
    codes |= bits_in_bytes[signs] << sign_bit;
    std::memcpy(q, &codes, sizeof codes);
}

// Eighths, without and with a sign.
inline constexpr std::array<float, 16> iq2_levels = {1, 3.125f, 5.375f, 0, -1, -3.125f, -5.375f};
inline constexpr std::array<float, 16> iq3_xxs_levels = {1,  3,  5,  7,  9,  11,  13,  15.5f,
                                                         -1, -3, -5, -7, -9, -11, -13, -15.5f};
inline constexpr std::array<float, 16> iq3_s_levels = {1,  3,  5,  7,  9,  11,  13,  15,
                                                       -1, -3, -5, -7, -9, -11, -13, -15};
// -1, 0 and 1, less an eighth and plus an eighth.
inline constexpr std::array<float, 16> iq1_levels = {-1.125f, -0.875f, -0.125f, 0.125f, 0.875f, 1.125f};

inline constexpr auto iq2_xxs_codes = in_bytes<uint64_t, 2>(iq2_xxs_grid);
inline constexpr auto iq2_xs_codes = in_bytes<uint64_t, 2>(iq2_xs_grid);
inline constexpr auto iq2_s_codes = in_bytes<uint64_t, 2>(iq2_s_grid);
inline constexpr auto iq3_xxs_codes = in_bytes<uint32_t, 3>(iq3_xxs_grid);
inline constexpr auto iq3_s_codes = in_bytes<uint32_t, 3>(iq3_s_grid);
inline constexpr auto iq1_codes = in_bytes<uint64_t, 2>(iq1_grid, 2);

inline uint64_t two_of(uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; }

inline uint32_t word_at(const uint8_t* p) {
    return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
           static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
}

// The scales of all these formats are odd multiples of d.
inline float odd(unsigned n) { return static_cast<float>(2 * n + 1); }
// n of them, of which a nibble says which.
template <int n>
inline void unpack_scales(const uint8_t* nibbles, float d, float* scale) {
    for (int g = 0; g < n; ++g) {
        const unsigned two = nibbles[g / 2];
        scale[g] = d * odd(two >> (g % 2 * 4) & 15);
    }
}

struct IQ2_XXS {
    static constexpr Type type = Type::iq2_xxs;
    static constexpr std::string_view name = "iq2_xxs";
    static constexpr uint32_t block_len = 256, group = 32;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = iq2_levels;
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
            scale[g] = d * odd(word >> 28);
            for (int k = 0; k < 4; ++k)
                write_codes<2>(iq2_xxs_codes[in[k]], even_signs[word >> (7 * k) & 127], q + 32 * g + 8 * k);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ2_XXS>(b, out); }
};

struct IQ2_XS {
    static constexpr Type type = Type::iq2_xs;
    static constexpr std::string_view name = "iq2_xs";
    static constexpr uint32_t block_len = 256, group = 16;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = iq2_levels;
    struct Block {
        uint16_t d;
        uint16_t q[32];      // nine bits of grid index, seven signs
        uint8_t factors[8];  // two 4-bit scales per 32
    };
    static_assert(sizeof(Block) == 74);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        unpack_scales<16>(b.factors, f16_to_f32(b.d), scale);
        for (int k = 0; k < 32; ++k)
            write_codes<2>(iq2_xs_codes[b.q[k] & 511], even_signs[b.q[k] >> 9], q + 8 * k);
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ2_XS>(b, out); }
};

struct IQ2_S {
    static constexpr Type type = Type::iq2_s;
    static constexpr std::string_view name = "iq2_s";
    static constexpr uint32_t block_len = 256, group = 16;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = iq2_levels;
    struct Block {
        uint16_t d;
        uint8_t q[32];       // low bytes of the grid indices
        uint8_t signs[32];   // one bit per element
        uint8_t high[8];     // upper two bits of four indices each
        uint8_t factors[8];  // two 4-bit scales per 32
    };
    static_assert(sizeof(Block) == 82);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        unpack_scales<16>(b.factors, f16_to_f32(b.d), scale);
        for (int k = 0; k < 32; ++k) {
            const unsigned high = b.high[k / 4] >> (k % 4 * 2) & 3;
            write_codes<2>(iq2_s_codes[b.q[k] | high << 8], b.signs[k], q + 8 * k);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ2_S>(b, out); }
};

struct IQ3_XXS {
    static constexpr Type type = Type::iq3_xxs;
    static constexpr std::string_view name = "iq3_xxs";
    static constexpr uint32_t block_len = 256, group = 32;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = iq3_xxs_levels;
    struct Block {
        uint16_t d;
        uint8_t q[64];        // grid indices, four elements each
        uint8_t factors[32];  // per 32 a word: four times seven signs and a 4-bit scale on top
    };
    static_assert(sizeof(Block) == 98);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 8; ++g) {
            const uint8_t* in = b.q + 8 * g;
            const uint32_t word = word_at(b.factors + 4 * g);
            scale[g] = d * odd(word >> 28);
            for (int k = 0; k < 4; ++k) {
                const uint64_t codes = two_of(iq3_xxs_codes[in[2 * k]], iq3_xxs_codes[in[2 * k + 1]]);
                write_codes<3>(codes, even_signs[word >> (7 * k) & 127], q + 32 * g + 8 * k);
            }
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ3_XXS>(b, out); }
};

struct IQ3_S {
    static constexpr Type type = Type::iq3_s;
    static constexpr std::string_view name = "iq3_s";
    static constexpr uint32_t block_len = 256, group = 32;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = iq3_s_levels;
    struct Block {
        uint16_t d;
        uint8_t q[64];       // low bytes of the grid indices, four elements each
        uint8_t high[8];     // ninth bits, eight indices each
        uint8_t signs[32];   // one bit per element
        uint8_t factors[4];  // two 4-bit scales
    };
    static_assert(sizeof(Block) == 110);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        unpack_scales<8>(b.factors, f16_to_f32(b.d), scale);
        for (int k = 0; k < 32; ++k) {
            const unsigned high = b.high[k / 4] >> (k % 4 * 2);
            const uint64_t codes = two_of(iq3_s_codes[b.q[2 * k] | (high & 1) << 8],
                                          iq3_s_codes[b.q[2 * k + 1] | (high & 2) << 7]);
            write_codes<3>(codes, b.signs[k], q + 8 * k);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ3_S>(b, out); }
};

// Elements of IQ1 are -1, 0 or 1, of eight of them all plus or all minus an eighth.
inline void write_ternary(unsigned index, bool minus, int8_t* q) {
    const uint64_t codes = iq1_codes[index] | (minus ? 0 : bits_in_bytes[255]);
    std::memcpy(q, &codes, sizeof codes);
}

struct IQ1_S {
    static constexpr Type type = Type::iq1_s;
    static constexpr std::string_view name = "iq1_s";
    static constexpr uint32_t block_len = 256, group = 32;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = iq1_levels;
    struct Block {
        uint16_t d;
        uint8_t q[32];     // low bytes of the grid indices
        uint16_t high[8];  // per 32: four times three upper bits, a 3-bit scale, the sign of the eighth
    };
    static_assert(sizeof(Block) == 50);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 8; ++g) {
            const unsigned word = b.high[g];
            scale[g] = d * odd(word >> 12 & 7);
            for (int k = 0; k < 4; ++k) {
                const unsigned index = b.q[4 * g + k] | (word >> (3 * k) & 7) << 8;
                write_ternary(index, word >> 15, q + 32 * g + 8 * k);
            }
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ1_S>(b, out); }
};

struct IQ1_M {
    static constexpr Type type = Type::iq1_m;
    static constexpr std::string_view name = "iq1_m";
    static constexpr uint32_t block_len = 256, group = 16;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = iq1_levels;
    struct Block {
        uint8_t q[32];        // low bytes of the grid indices
        uint8_t high[16];     // per eight elements a nibble: three upper bits, the sign of the eighth
        uint16_t factors[4];  // four 3-bit scales each; the upper nibbles are the f16 d, lowest first
    };
    static_assert(sizeof(Block) == 56);

    static uint16_t d_of(const Block& b) {
        int d = 0;
        for (int k = 0; k < 4; ++k) d |= b.factors[k] >> 12 << (4 * k);
        return static_cast<uint16_t>(d);
    }
    static void unpack(const Block& b, int8_t* q, float* scale) {
        const float d = f16_to_f32(d_of(b));
        for (int g = 0; g < 16; ++g) {
            const unsigned factors = b.factors[g / 4];
            scale[g] = d * odd(factors >> (g % 4 * 3) & 7);
        }
        for (int k = 0; k < 32; ++k) {
            const unsigned nibble = b.high[k / 2] >> (k % 2 * 4);
            const unsigned index = b.q[k] | (nibble & 7) << 8;
            write_ternary(index, nibble & 8, q + 8 * k);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<IQ1_M>(b, out); }
};

}  // namespace nibble
