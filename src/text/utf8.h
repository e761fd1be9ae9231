// UTF-8: lengths, validity, and the byte-level alphabet of GPT-2 style vocabularies.
// Nothing here allocates more than its result.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nibble {

// Bytes of the character that starts with this byte, 0 if none can start with it.
inline int utf8_length(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

// Length of the valid character at the start of s; 0 when s starts with an invalid or incomplete one.
inline int valid_utf8_at(std::string_view s) {
    if (s.empty()) return 0;
    const auto at = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
    const int n = utf8_length(at(0));
    if (n == 0 || static_cast<size_t>(n) > s.size()) return 0;
    for (int i = 1; i < n; ++i)
        if ((at(static_cast<size_t>(i)) & 0xC0) != 0x80) return 0;
    // Overlong forms, surrogates and values past U+10FFFF.
    if (at(0) == 0xE0 && at(1) < 0xA0) return 0;
    if (at(0) == 0xED && at(1) > 0x9F) return 0;
    if (at(0) == 0xF0 && at(1) < 0x90) return 0;
    if (at(0) == 0xF4 && at(1) > 0x8F) return 0;
    return n;
}

void append_utf8(std::string& out, uint32_t code_point);

// The printable character that stands for a byte in byte-level vocabularies: printable Latin-1 stands for
// itself, the other 68 bytes for U+0100 and up, in order.
const std::array<std::string, 256>& byte_alphabet();

// Bytes behind a token in that alphabet; nothing when it holds a character that stands for no byte.
std::optional<std::string> alphabet_to_bytes(std::string_view token);

}  // namespace nibble
