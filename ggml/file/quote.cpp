// Escaping of untrusted text for messages.
// UTF-8 passes through, except where the cut would leave half a character.
#include "ggml/file/quote.h"

#include "ggml/base/cat.h"

namespace nibble {

std::string printable(std::string_view text, size_t limit) {
    constexpr std::string_view hex = "0123456789abcdef";
    const bool cut = text.size() > limit;
    if (cut) {
        size_t n = limit;
        while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80) --n;
        text = text.substr(0, n);
    }
    std::string out;
    for (const char c : text) {
        const auto u = static_cast<unsigned char>(c);
        if (u >= 0x20 && u != 0x7f) {
            out += c;
        } else {
            out += "\\x";
            out += hex[u >> 4];
            out += hex[u & 15];
        }
    }
    if (cut) out += "…";
    return out;
}

std::string quote(std::string_view text, size_t limit) { return cat("'", printable(text, limit), "'"); }

}  // namespace nibble
