// The formats of tiles as a list, each once however many types share it: for kernels that take any of them.
// with_format() goes from the number of one, known when a kernel runs, to the format.
#pragma once

#include <array>
#include <utility>

#include "ggml/cuda/device.h"
#include "ggml/cuda/tiles.h"
#include "ggml/types/list.h"

namespace nibble::cuda {

struct TileCodes {
    std::array<uint32_t, 32> code{};
    size_t count = 0;
    constexpr bool has(uint32_t c) const {
        for (size_t i = 0; i < count; ++i)
            if (code[i] == c) return true;
        return false;
    }
};

// Those that the condition holds for.
template <class Wanted, class... F>
constexpr TileCodes tile_codes_if(const Wanted& wanted, FormatList<F...> /*all*/) {
    TileCodes list;
    for (const uint32_t code : {format_code(tile_format<F>())...})
        if (wanted(format_of(code)) && !list.has(code)) list.code[list.count++] = code;
    return list;
}

// Tables would need shared memory of their own in kernels that take any format.
inline constexpr TileCodes codes_without_table =
    tile_codes_if([](TileFormat f) { return !f.table; }, Formats{});

// Calls fn.operator()<code>() for the code, if it is in the list. Not a function of its own: products of
// warpgroups may not be under way where one is called.
template <const TileCodes& list, class Fn, size_t... i>
__device__ __forceinline__ void with_format(uint32_t code, Fn&& fn, std::index_sequence<i...>) {
    (void)((code == list.code[i] ? (fn.template operator()<list.code[i]>(), true) : false) || ...);
}
template <const TileCodes& list, class Fn>
__device__ __forceinline__ void with_format(uint32_t code, Fn&& fn) {
    with_format<list>(code, std::forward<Fn>(fn), std::make_index_sequence<list.count>());
}

}  // namespace nibble::cuda
