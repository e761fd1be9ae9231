// F32, F16 and BF16 as formats: blocks of one element.
// Every format struct has the members shown here; kernels and the list are templates over them.
#pragma once

#include "ggml/types/float16.h"
#include "ggml/types/type.h"

namespace nibble {

struct F32 {
    static constexpr Type type = Type::f32;
    static constexpr std::string_view name = "f32";
    static constexpr uint32_t block_len = 1;
    static constexpr DotClass dot = DotClass::real;
    using Block = float;
    static void decode(const Block& b, float* out) { *out = b; }
    static void encode(const float* in, Block& b) { b = *in; }
};

struct F16 {
    static constexpr Type type = Type::f16;
    static constexpr std::string_view name = "f16";
    static constexpr uint32_t block_len = 1;
    static constexpr DotClass dot = DotClass::real;
    using Block = uint16_t;
    static void decode(const Block& b, float* out) { *out = f16_to_f32(b); }
    static void encode(const float* in, Block& b) { b = f32_to_f16(*in); }
};

struct BF16 {
    static constexpr Type type = Type::bf16;
    static constexpr std::string_view name = "bf16";
    static constexpr uint32_t block_len = 1;
    static constexpr DotClass dot = DotClass::real;
    using Block = uint16_t;
    static void decode(const Block& b, float* out) { *out = bf16_to_f32(b); }
    static void encode(const float* in, Block& b) { b = f32_to_bf16(*in); }
};

}  // namespace nibble
