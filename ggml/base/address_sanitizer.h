// Whether AddressSanitizer watches this build, which GCC and Clang tell in different ways.
// Where it does, memory can be forbidden.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define NIBBLE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NIBBLE_ASAN 1
#endif
#endif
#ifdef NIBBLE_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace nibble {

// forbid(): nobody may read or write [from, to) until it is freed; nothing happens where nobody watches.
#ifdef NIBBLE_ASAN
inline constexpr bool addresses_watched = true;
inline void forbid(const std::byte* from, const std::byte* to) {
    __asan_poison_memory_region(from, static_cast<size_t>(to - from));
}
#else
inline constexpr bool addresses_watched = false;
inline void forbid(const std::byte* /*from*/, const std::byte* /*to*/) {}
#endif

}  // namespace nibble
