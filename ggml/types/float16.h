// Scalar conversions between f32 and the two 16-bit float types; the definition every kernel must equal.
// Both round to nearest, ties to even; f16 saturates to infinity, NaNs stay NaNs.
#pragma once

#include <bit>
#include <cstdint>

namespace nibble {

inline float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

inline uint16_t f32_to_bf16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40);  // quiet NaN
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

inline float f16_to_f32(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
    const uint32_t rest = h & 0x7fff;
    if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ff) << 13);
    if (rest >= 0x0400) return std::bit_cast<float>(sign | ((rest << 13) + (112u << 23)));
    const float magnitude = static_cast<float>(rest) * 0x1p-24f;  // zero and subnormals are exact
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline uint16_t f32_to_f16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000);
    const uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00 | ((a >> 13) & 0x3ff));
    if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and above round to infinity
    if (a < 0x38800000u) {
        // Subnormal result: adding 0.5 aligns the mantissa so that the FPU rounds to nearest even.
        const float r = std::bit_cast<float>(a) + 0.5f;
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(r) - 0x3f000000u));
    }
    const uint32_t rounded = a + 0xfffu + ((a >> 13) & 1) - (112u << 23);
    return static_cast<uint16_t>(sign | (rounded >> 13));
}

}  // namespace nibble
