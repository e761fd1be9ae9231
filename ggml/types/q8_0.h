// Q8_0 ("int8"): 32 signed bytes and one f16 scale; x = d * q.
// Rounding as GGUF's reference defines it: d = amax / 127, q = round(x * (1 / d)) with the unrounded d.
#pragma once

#include <algorithm>
#include <cmath>

#include "ggml/types/float16.h"
#include "ggml/types/type.h"

namespace nibble {

struct Q8_0 {
    static constexpr Type type = Type::q8_0;
    static constexpr std::string_view name = "q8_0";
    static constexpr uint32_t block_len = 32;
    static constexpr DotClass dot = DotClass::scaled_int;
    struct Block {
        uint16_t d;  // f16
        int8_t q[32];
    };
    static_assert(sizeof(Block) == 34);

    static void decode(const Block& b, float* out) {
        const float d = f16_to_f32(b.d);
        for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(b.q[i]);
    }

    static void encode(const float* in, Block& b) {
        float amax = 0;
        for (int i = 0; i < 32; ++i) amax = std::max(amax, std::fabs(in[i]));
        const float d = amax / 127;
        const float inverse = d > 0 ? 1 / d : 0;
        b.d = f32_to_f16(d);
        for (int i = 0; i < 32; ++i) b.q[i] = static_cast<int8_t>(std::lround(in[i] * inverse));
    }
};

}  // namespace nibble
