// UTF-8 decoding and the case, space and printability rules of unicode.h.
// The case ranges are those of the Unicode Character Database for the bicameral scripts in common use.
#include "src/text/jinja/unicode.h"

namespace nibble::jinja {
namespace {
constexpr uint32_t stray_byte = 0xDC00;

bool in(uint32_t c, uint32_t first, uint32_t last) { return c >= first && c <= last; }
}  // namespace

CodePoint decode(std::string_view s, size_t at) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
    const uint32_t lead = byte(at);
    if (lead < 0x80) return {lead, 1};
    const uint32_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    const CodePoint stray{stray_byte + lead, 1};
    if (lead < 0xC2 || lead > 0xF4 || s.size() - at < length) return stray;
    uint32_t value = lead & (0xFFu >> (length + 1));
    for (uint32_t i = 1; i < length; ++i) {
        if ((byte(at + i) & 0xC0) != 0x80) return stray;
        value = value << 6 | (byte(at + i) & 0x3Fu);
    }
    const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
    if (overlong || value > 0x10FFFF || in(value, 0xD800, 0xDFFF)) return stray;
    return {value, length};
}

void encode(uint32_t c, std::string& out) {
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (in(c, 0xDC80, 0xDCFF)) {
        out += static_cast<char>(c - stray_byte);
    } else if (c < 0x800) {
        out += static_cast<char>(0xC0 | c >> 6);
        out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        out += static_cast<char>(0xE0 | c >> 12);
        out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
        out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
        out += static_cast<char>(0xF0 | c >> 18);
        out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
        out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
        out += static_cast<char>(0x80 | (c & 0x3F));
    }
}

bool is_ascii(std::string_view s) {
    uint8_t any = 0;
    for (const char c : s) any |= static_cast<uint8_t>(c);
    return any < 0x80;
}

size_t count_code_points(std::string_view s) {
    if (is_ascii(s)) return s.size();
    size_t n = 0;
    for (size_t at = 0; at < s.size(); at += decode(s, at).length) ++n;
    return n;
}

size_t byte_offset(std::string_view s, size_t code_points) {
    size_t at = 0;
    while (code_points-- > 0 && at < s.size()) at += decode(s, at).length;
    return at;
}

size_t previous(std::string_view s, size_t at) {
    for (size_t back = 2; back <= 4 && back <= at; ++back) {
        if (decode(s, at - back).length == back) return at - back;
    }
    return at - 1;
}

bool is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || in(c, 0x09, 0x0D) || in(c, 0x1C, 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || in(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_end(uint32_t c) {
    return in(c, 0x0A, 0x0D) || in(c, 0x1C, 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(uint32_t c) {
    if (c < 0x7F) return c >= 0x20;
    if (c <= 0xA0 || c == 0xAD || is_space(c)) return false;
    return !(in(c, 0x200B, 0x200F) || in(c, 0x202A, 0x202E) || in(c, 0x2060, 0x206F) ||
             in(c, 0xD800, 0xF8FF) || c == 0xFEFF || in(c, 0xFFF0, 0xFFFB) || (c & 0xFFFE) == 0xFFFE ||
             c >= 0xE0000);
}

bool is_letter(uint32_t c) {
    if (c < 0x80) return in(c | 0x20, 'a', 'z');
    if (c < 0xC0) return c == 0xAA || c == 0xB5 || c == 0xBA;
    return c != 0xD7 && c != 0xF7 && !in(c, 0x2000, 0x2BFF) && !in(c, 0x3000, 0x3004) &&
           !in(c, 0x3007, 0x3030) && !in(c, 0xD800, 0xF8FF) && !in(c, 0xFE10, 0xFE6F) && c < 0x1F000;
}

uint32_t to_upper(uint32_t c) {
    if (c < 0x80) return in(c, 'a', 'z') ? c - 32 : c;
    if (c == 0xB5) return 0x39C;
    if (c == 0xFF) return 0x178;
    if (in(c, 0xE0, 0xFE)) return c == 0xF7 ? c : c - 32;
    if (c == 0x131) return 'I';
    if (c == 0x17F) return 'S';
    if (in(c, 0x100, 0x137) || in(c, 0x14A, 0x177) || in(c, 0x460, 0x481) || in(c, 0x48A, 0x4BF) ||
        in(c, 0x4D0, 0x52F) || in(c, 0x1E00, 0x1E95) || in(c, 0x1EA0, 0x1EFF)) {
        return c & ~1u;
    }
    if (in(c, 0x139, 0x148) || in(c, 0x179, 0x17E)) return c % 2 == 0 ? c - 1 : c;
    if (c == 0x3AC) return 0x386;
    if (in(c, 0x3AD, 0x3AF)) return c - 37;
    if (c == 0x3C2) return 0x3A3;
    if (in(c, 0x3B1, 0x3CB)) return c - 32;
    if (c == 0x3CC) return 0x38C;
    if (in(c, 0x3CD, 0x3CE)) return c - 63;
    if (in(c, 0x430, 0x44F)) return c - 32;
    if (in(c, 0x450, 0x45F)) return c - 80;
    if (in(c, 0x4C1, 0x4CE)) return c % 2 == 0 ? c - 1 : c;
    if (in(c, 0x561, 0x586)) return c - 48;
    return c;
}

uint32_t to_lower(uint32_t c) {
    if (c < 0x80) return in(c, 'A', 'Z') ? c + 32 : c;
    if (in(c, 0xC0, 0xDE)) return c == 0xD7 ? c : c + 32;
    if (c == 0x178) return 0xFF;
    if (c == 0x1E9E) return 0xDF;
    if (in(c, 0x139, 0x148) || in(c, 0x179, 0x17E)) return c % 2 == 1 ? c + 1 : c;
    if (in(c, 0x100, 0x137) || in(c, 0x14A, 0x177) || in(c, 0x460, 0x481) || in(c, 0x48A, 0x4BF) ||
        in(c, 0x4D0, 0x52F) || in(c, 0x1E00, 0x1E95) || in(c, 0x1EA0, 0x1EFF)) {
        return c == 0x131 ? c : c | 1u;
    }
    if (c == 0x386) return 0x3AC;
    if (in(c, 0x388, 0x38A)) return c + 37;
    if (c == 0x38C) return 0x3CC;
    if (in(c, 0x38E, 0x38F)) return c + 63;
    if (in(c, 0x391, 0x3AB)) return c == 0x3A2 ? c : c + 32;
    if (in(c, 0x410, 0x42F)) return c + 32;
    if (in(c, 0x400, 0x40F)) return c + 80;
    if (in(c, 0x4C1, 0x4CE)) return c % 2 == 1 ? c + 1 : c;
    if (in(c, 0x531, 0x556)) return c + 48;
    return c;
}

}  // namespace nibble::jinja
