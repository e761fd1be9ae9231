// Checked integer arithmetic for sizes and offsets that come from files or flags.
// Each returns false on overflow and then leaves the output untouched.
#pragma once

#include <concepts>

namespace nibble {

template <std::integral T>
[[nodiscard]] bool checked_mul(T a, T b, T& out) {
    T r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    out = r;
    return true;
}

template <std::integral T>
[[nodiscard]] bool checked_add(T a, T b, T& out) {
    T r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    out = r;
    return true;
}

// Rounds up to a multiple of `to` (> 0); the caller has checked that x + to does not overflow.
template <std::integral T>
constexpr T round_up(T x, T to) {
    return (x + to - 1) / to * to;
}

template <std::integral T>
constexpr T ceil_div(T x, T by) {
    return (x + by - 1) / by;
}

}  // namespace nibble
