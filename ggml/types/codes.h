// Formats as integer codes: every quantized format says once, in unpack(), what its bits mean.
// decode() follows from it, and so do the loaders of the matmul kernels.
//
// A format F of this kind has, besides the members shown in real.h:
//   group                      elements that share a scale; block_len is a multiple of it
//   unpack(b, q, scale)        DotClass::scaled_int: element i = scale[i / group] * q[i]
//   unpack(b, q, scale)        DotClass::table:      element i = scale[i / group] * F::table[q[i]]
//   unpack(b, q, scale, min)   DotClass::scaled_int_min: element i = scale[i / group] * q[i] + min[i / group]
// with q: int8_t[block_len] in element order, scale and min: float[block_len / group].
#pragma once

#include "ggml/types/type.h"

namespace nibble {

template <class F>
void decode_codes(const typename F::Block& b, float* out) {
    constexpr int group = F::group, groups = F::block_len / F::group;
    int8_t q[F::block_len];
    float scale[groups];
    if constexpr (F::dot == DotClass::scaled_int_min) {
        float min[groups];
        F::unpack(b, q, scale, min);
        for (int g = 0; g < groups; ++g)
            for (int i = g * group; i < (g + 1) * group; ++i)
                out[i] = scale[g] * static_cast<float>(q[i]) + min[g];
    } else {
        F::unpack(b, q, scale);
        for (int g = 0; g < groups; ++g)
            for (int i = g * group; i < (g + 1) * group; ++i) {
                if constexpr (F::dot == DotClass::table)
                    out[i] = scale[g] * static_cast<float>(F::table[q[i]]);
                else
                    out[i] = scale[g] * static_cast<float>(q[i]);
            }
    }
}

}  // namespace nibble
