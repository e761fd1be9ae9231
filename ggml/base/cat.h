// Joins values into one string: the small thing that std::format would do (absent from GCC 12).
// Numbers use std::to_chars, so the result never depends on the locale.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace nibble {

namespace detail {
inline void append(std::string& s, std::string_view v) { s += v; }
template <class T>
requires(std::integral<T> || std::floating_point<T>) void append(std::string& s, T v) {
    if constexpr (std::same_as<T, char>) {
        s += v;
    } else if constexpr (std::same_as<T, bool>) {
        s += v ? "true" : "false";
    } else {
        char buf[64];
        auto r = std::to_chars(buf, buf + sizeof buf, v);
        s.append(buf, r.ptr);
    }
}
}  // namespace detail

// cat("row ", 3, " of ", n): integers in decimal, floats in the shortest form that reads back equal.
template <class... Args>
std::string cat(const Args&... args) {
    std::string s;
    (detail::append(s, args), ...);
    return s;
}

}  // namespace nibble
