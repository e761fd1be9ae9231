// Q8_0 ("int8"): 32 signed bytes and one f16 scale; x = d * q. Also Q8_1 and Q8_K, which carry sums of codes.
// Rounding as GGUF's reference defines it: d = amax / 127, q = round(x * (1 / d)) with the unrounded d.
#pragma once

#include "ggml/types/codes.h"
#include "ggml/types/rounding.h"

namespace nibble {

// q = round(x * inverse), halves away from zero, within -127..127.
template <int n>
void byte_codes(const float* x, float inverse, int8_t* q) {
    signed_codes<n>(x, inverse, -127, 127, 0, q);
}

struct Q8_0 {
    static constexpr Type type = Type::q8_0;
    static constexpr std::string_view name = "q8_0";
    static constexpr uint32_t block_len = 32, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint16_t d;  // f16
        int8_t q[32];
    };
    static_assert(sizeof(Block) == 34);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        std::memcpy(q, b.q, 32);
        *scale = f16_to_f32(b.d);
    }
    static void decode(const Block& b, float* out) { decode_codes<Q8_0>(b, out); }

    static void encode(const float* in, Block& b) {
        const float d = max_abs<32>(in) / 127;
        b.d = f16_scale(d);
        byte_codes<32>(in, inverse_or_zero(d), b.q);
    }
};

// Q8_1: Q8_0 with s = d * (sum of the codes). A format for activations; files do not use it.
struct Q8_1 {
    static constexpr Type type = Type::q8_1;
    static constexpr std::string_view name = "q8_1";
    static constexpr uint32_t block_len = 32, group = 32;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint16_t d, s;  // f16
        int8_t q[32];
    };
    static_assert(sizeof(Block) == 36);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        std::memcpy(q, b.q, 32);
        *scale = f16_to_f32(b.d);
    }
    static void decode(const Block& b, float* out) { decode_codes<Q8_1>(b, out); }

    static void encode(const float* in, Block& b) {
        const float d = max_abs<32>(in) / 127;
        b.d = f16_scale(d);
        byte_codes<32>(in, inverse_or_zero(d), b.q);
        int sum = 0;
        for (int i = 0; i < 32; ++i) sum += b.q[i];
        b.s = f16_scale(d * static_cast<float>(sum));
    }
};

// Q8_K: 256 signed bytes, an f32 scale and the sums of the codes by sixteens. For activations too.
struct Q8_K {
    static constexpr Type type = Type::q8_k;
    static constexpr std::string_view name = "q8_k";
    static constexpr uint32_t block_len = 256, group = 256;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        float d;
        int8_t q[256];
        int16_t sums[16];
    };
    static_assert(sizeof(Block) == 292);

    static void unpack(const Block& b, int8_t* q, float* scale) {
        std::memcpy(q, b.q, 256);
        *scale = b.d;
    }
    static void decode(const Block& b, float* out) { decode_codes<Q8_K>(b, out); }

    static void encode(const float* in, Block& b) {
        b.d = max_abs<256>(in) / 127;
        byte_codes<256>(in, inverse_or_zero(b.d), b.q);
        for (int g = 0; g < 16; ++g) {
            int sum = 0;
            for (int i = 16 * g; i < 16 * g + 16; ++i) sum += b.q[i];
            b.sums[g] = static_cast<int16_t>(sum);
        }
    }
};

}  // namespace nibble
