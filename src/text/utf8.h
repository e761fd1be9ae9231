// UTF-8: lengths, validity, and the byte-level alphabet of GPT-2 style vocabularies.
// Nothing here allocates more than its result.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nibble {

// Some editors begin a file with a byte order mark; it is no part of the text.
inline std::string_view without_byte_order_mark(std::string_view text) {
    constexpr std::string_view mark = "\xEF\xBB\xBF";
    return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

// Bytes of the character that starts with this byte, 0 if none can start with it.
inline int utf8_length(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

// Bytes of s, which starts with no complete valid character, that could begin one: 0 to 3.
// (Unicode 15, table 3-7: after E0, ED, F0 and F4 the second byte has a smaller range, which excludes
// overlong forms, surrogates and values past U+10FFFF.)
inline size_t unfinished_utf8_at(std::string_view s) {
    if (s.empty()) return 0;
    const auto lead = static_cast<unsigned char>(s[0]);
    const auto n = static_cast<size_t>(utf8_length(lead));
    size_t i = n > 0 ? 1 : 0;
    for (; i > 0 && i < n && i < s.size(); ++i) {
        const auto c = static_cast<unsigned char>(s[i]);
        const unsigned char low = i == 1 && lead == 0xE0 ? 0xA0 : i == 1 && lead == 0xF0 ? 0x90 : 0x80;
        const unsigned char high = i == 1 && lead == 0xED ? 0x9F : i == 1 && lead == 0xF4 ? 0x8F : 0xBF;
        if (c < low || c > high) break;
    }
    return i;
}

// Length of the valid character at the start of s; 0 when s starts with an invalid or incomplete one.
inline int valid_utf8_at(std::string_view s) {
    if (!s.empty() && static_cast<unsigned char>(s[0]) < 0x80) return 1;
    const int n = s.empty() ? 0 : utf8_length(static_cast<unsigned char>(s[0]));
    return n > 0 && unfinished_utf8_at(s) == static_cast<size_t>(n) ? n : 0;
}

void append_utf8(std::string& out, uint32_t code_point);

// The printable character that stands for a byte in byte-level vocabularies: printable Latin-1 stands for
// itself, the other 68 bytes for U+0100 and up, in order.
const std::array<std::string, 256>& byte_alphabet();

// Bytes behind a token in that alphabet; nothing when it holds a character that stands for no byte.
std::optional<std::string> alphabet_to_bytes(std::string_view token);

}  // namespace nibble
