// Resolves \n, \x41, \101, \u00e9 and the like; a pair of \u surrogates becomes one code point.
// Source of the rules: The Python Language Reference, 2.4.1.1 "Escape sequences".
#include "src/text/jinja/string_literal.h"

#include <charconv>

#include "ggml/base/cat.h"
#include "src/text/jinja/unicode.h"

namespace nibble::jinja {
namespace {

Error malformed(std::string_view body, size_t at) {
    return {ErrorCode::invalid_argument, "",
            cat("a malformed escape '\\", body.substr(at, 1), "' in a string"), ""};
}

// Exactly `count` hexadecimal digits at `at`.
bool hex(std::string_view s, size_t at, size_t count, uint32_t& out) {
    if (s.size() < at + count) return false;
    const auto r = std::from_chars(s.data() + at, s.data() + at + count, out, 16);
    return r.ec == std::errc() && r.ptr == s.data() + at + count;
}

// A \x, \u or \U escape whose letter is at `at`; moves `at` past it.
Result<uint32_t> numeric(std::string_view s, size_t& at) {
    const size_t digits = s[at] == 'x' ? 2 : s[at] == 'u' ? 4 : 8;
    uint32_t c = 0, low = 0;
    if (!hex(s, at + 1, digits, c) || c > 0x10FFFF) return malformed(s, at);
    const size_t begin = at;
    at += digits + 1;
    if (c < 0xD800 || c > 0xDFFF) return c;
    const bool paired = c < 0xDC00 && s.substr(at).starts_with("\\u") && hex(s, at + 2, 4, low) &&
                        low >= 0xDC00 && low <= 0xDFFF;
    if (!paired) return malformed(s, begin);
    at += 6;
    return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
}

}  // namespace

Result<std::string> unescape(std::string_view s) {
    std::string out;
    out.reserve(s.size());
    for (size_t at = 0; at < s.size();) {
        if (s[at] != '\\' || at + 1 == s.size()) {
            out += s[at++];
            continue;
        }
        const char c = s[++at];
        constexpr std::string_view names = "abfnrtv\\'\"", values = "\a\b\f\n\r\t\v\\'\"";
        if (const size_t known = names.find(c); known != names.npos) {
            out += values[known];
            ++at;
        } else if (c == '\n') {
            ++at;  // a line end in a string can be hidden
        } else if (c >= '0' && c <= '7') {
            uint32_t value = 0;
            for (int i = 0; i < 3 && at < s.size() && s[at] >= '0' && s[at] <= '7'; ++i, ++at) {
                value = value * 8 + static_cast<uint32_t>(s[at] - '0');
            }
            encode(value, out);
        } else if (c == 'x' || c == 'u' || c == 'U') {
            encode(NIBBLE_TRY(numeric(s, at)), out);
        } else if (c == 'N') {
            return malformed(s, at);
        } else {
            out += '\\';
        }
    }
    return out;
}

}  // namespace nibble::jinja
