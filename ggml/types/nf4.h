// NF4 and NF4 with double-quantized scales: private types, blocks of 64 times the codebook of QLoRA
// (Dettmers et al. 2023, arXiv:2305.14314, appendix E, as the bitsandbytes package states it in f32).
//
// Codes are those of bitsandbytes (0.50): v = x * (1 / max(absmax, 1e-38)) in f32 with the f32 absmax of the
// block, and the number of midpoints strictly below v. Only the stored scale is rounded.
#pragma once

#include <cstdlib>

#include "ggml/types/codes.h"
#include "ggml/types/rounding.h"

namespace nibble {

inline constexpr std::array<float, 16> nf4_levels = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};
inline constexpr auto nf4_mid = midpoints(nf4_levels);

// Codes of one block of 64 with this absmax.
inline void nf4_codes(const float* x, float absmax, uint8_t* q) {
    level_codes<64>(x, 1 / (absmax > 1e-38f ? absmax : 1e-38f), nf4_mid, q);
}

// x = absmax * level[q]; 34 bytes per 64 elements, 4.25 bits each.
struct NF4 {
    static constexpr Type type = Type::nf4;
    static constexpr std::string_view name = "nf4";
    static constexpr uint32_t block_len = 64, group = 64;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = nf4_levels;
    static constexpr auto& levels = nf4_levels;
    struct Block {
        uint16_t absmax;  // f16; a search may make it negative, which mirrors the codebook
        uint8_t q[32];    // element j low, j + 32 high
    };
    static_assert(sizeof(Block) == 34);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        unpack_nibbles<64>(b.q, q);
        *scale = f16_to_f32(b.absmax);
    }
    static void decode(const Block& b, float* out) { decode_codes<NF4>(b, out); }

    static float snap(float scale) { return f16_to_f32(f16_scale(scale)); }
    static void pack(const uint8_t* q, const float* scale, Block& b) {
        b.absmax = f16_scale(*scale);
        pack_nibbles<64>(q, b.q);
    }
    static void encode(const float* in, Block& b) {
        const float absmax = max_abs<64>(in);
        uint8_t q[64];
        nf4_codes(in, absmax, q);
        pack(q, &absmax, b);
    }
};

// Superblocks of 256: four blocks of 64 whose absmax is d * (s / 128)^2, with the sign of s (which only a
// search makes negative), an f16 d and 8-bit s; 134 bytes, 4.1875 bits per element. The square keeps the
// relative error of an absmax within 1/s: 0.4 % at the top and 1.6 % at a sixteenth of it, where a linear
// code would have 6 %. Its share of the squared error stays below a thousandth of that of the codes.
struct NF4_DQ {
    static constexpr Type type = Type::nf4_dq;
    static constexpr std::string_view name = "nf4-dq";
    static constexpr uint32_t block_len = 256, group = 64;
    static constexpr DotClass dot = DotClass::table;
    static constexpr auto& table = nf4_levels;
    static constexpr auto& levels = nf4_levels;
    static constexpr int min_factor = -127, max_factor = 127;
    struct Block {
        uint16_t d;
        int8_t s[4];
        uint8_t q[128];  // blocks as in NF4
    };
    static_assert(sizeof(Block) == 134);

    static float factor(int s) { return static_cast<float>(s * std::abs(s)) * 0x1p-14f; }
    static int nearest_factor(float ratio) {
        return round_away(std::copysign(clamped(128 * std::sqrt(std::fabs(ratio)), 0, max_factor), ratio));
    }
    static void unpack(const Block& b, int8_t* q, float* scale) {
        const float d = f16_to_f32(b.d);
        for (int g = 0; g < 4; ++g) {
            unpack_nibbles<64>(b.q + 32 * g, q + 64 * g);
            scale[g] = d * factor(b.s[g]);
        }
    }
    static void decode(const Block& b, float* out) { decode_codes<NF4_DQ>(b, out); }

    static void pack(const uint8_t* q, const int* s, uint16_t d, Block& b) {
        b.d = d;
        for (int g = 0; g < 4; ++g) {
            b.s[g] = static_cast<int8_t>(s[g]);
            pack_nibbles<64>(q + 64 * g, b.q + 32 * g);
        }
    }
    static void encode(const float* in, Block& b) {
        float absmax[4], largest = 0;
        uint8_t q[256];
        for (int g = 0; g < 4; ++g) {
            absmax[g] = max_abs<64>(in + 64 * g);
            largest = absmax[g] > largest ? absmax[g] : largest;
            nf4_codes(in + 64 * g, absmax[g], q + 64 * g);
        }
        const uint16_t d = f16_scale(largest * (16384.0f / 16129.0f));
        const float by_d = inverse_or_zero(f16_to_f32(d));
        int s[4];
        for (int g = 0; g < 4; ++g) s[g] = nearest_factor(absmax[g] * by_d);
        pack(q, s, d, b);
    }
};

}  // namespace nibble
