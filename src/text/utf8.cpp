// The byte-level alphabet and UTF-8 encoding.
// Both directions come from one table.
#include "src/text/utf8.h"

namespace nibble {
namespace {

bool stands_for_itself(int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

// Code point -> byte, for the code points of the alphabet (all below 0x144).
const std::array<int16_t, 0x144>& reverse_alphabet() {
    static const auto table = [] {
        std::array<int16_t, 0x144> t;
        t.fill(-1);
        int16_t next = 0x100;
        for (int16_t b = 0; b < 256; ++b) t[static_cast<size_t>(stands_for_itself(b) ? b : next++)] = b;
        return t;
    }();
    return table;
}

}  // namespace

void append_utf8(std::string& out, uint32_t c) {
    const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
    if (c < 0x80) return put(c);
    if (c < 0x800) {
        put(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            put(0xE0 | c >> 12);
        } else {
            put(0xF0 | c >> 18);
            put(0x80 | (c >> 12 & 0x3F));
        }
        put(0x80 | (c >> 6 & 0x3F));
    }
    put(0x80 | (c & 0x3F));
}

const std::array<std::string, 256>& byte_alphabet() {
    static const auto table = [] {
        std::array<std::string, 256> t;
        uint32_t next = 0x100;
        for (int b = 0; b < 256; ++b)
            append_utf8(t[static_cast<size_t>(b)], stands_for_itself(b) ? static_cast<uint32_t>(b) : next++);
        return t;
    }();
    return table;
}

std::optional<std::string> alphabet_to_bytes(std::string_view token) {
    const auto& reverse = reverse_alphabet();
    std::string bytes(token.size(), '\0');
    size_t size = 0;
    while (!token.empty()) {
        uint32_t c = static_cast<unsigned char>(token[0]);
        size_t n = 1;
        if (c >= 0x80) {
            if (valid_utf8_at(token) != 2) return {};
            c = (c & 0x1Fu) << 6 | (static_cast<unsigned char>(token[1]) & 0x3Fu);
            n = 2;
        }
        if (c >= reverse.size() || reverse[c] < 0) return {};
        bytes[size++] = static_cast<char>(reverse[c]);
        token.remove_prefix(n);
    }
    bytes.resize(size);
    return bytes;
}

}  // namespace nibble
