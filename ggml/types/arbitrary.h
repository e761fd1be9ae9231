// Blocks of any codes and any integers of scales: encoders write only some of them, and some formats have
// none. Their factors are what the caller says. For tests, and for weights that are made up.
#pragma once

#include <cstdint>
#include <cstring>

#include "ggml/types/list.h"

namespace nibble {

template <class Fmt>
concept HasFactor = requires(typename Fmt::Block b) {
    b.d;
}
|| requires(typename Fmt::Block b) { Fmt::d_of(b); };

template <HasFactor Fmt, class Random>
typename Fmt::Block arbitrary_block(Random& random, float d, [[maybe_unused]] float dmin) {
    typename Fmt::Block b;
    auto* const bytes = reinterpret_cast<unsigned char*>(&b);
    for (size_t i = 0; i < sizeof b; ++i) bytes[i] = static_cast<unsigned char>(random());
    const uint16_t factor = f32_to_f16(d);
    if constexpr (requires { b.d; }) {
        b.d = factor;
    } else {  // in the upper nibbles of four words
        for (int k = 0; k < 4; ++k)
            b.factors[k] = static_cast<uint16_t>((b.factors[k] & 0xfff) | (factor >> (4 * k) & 15) << 12);
    }
    if constexpr (requires { b.dmin; }) b.dmin = f32_to_f16(dmin);
    return b;
}

}  // namespace nibble
