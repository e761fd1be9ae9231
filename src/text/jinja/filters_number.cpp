// Filters that make or change numbers.
// Text that is not a number gives the default, as in Jinja.
#include <charconv>
#include <cmath>

#include "ggml/base/cat.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/unicode.h"

namespace nibble::jinja {
namespace {

// White space around and single underscores between digits, as Python's int() and float() accept them.
std::string clean_number(std::string_view s) {
    while (!s.empty() && is_space(decode(s, 0).value)) s.remove_prefix(decode(s, 0).length);
    while (!s.empty() && is_space(decode(s, previous(s, s.size())).value))
        s = s.substr(0, previous(s, s.size()));
    std::string out;
    for (size_t i = 0; i < s.size(); ++i) {
        const auto digit = [&](size_t at) {
            return at < s.size() && std::isalnum(static_cast<unsigned char>(s[at]));
        };
        if (s[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
        out += s[i];
    }
    if (out.size() > 1 && out[0] == '+' && out[1] != '-') out.erase(0, 1);
    return out;
}

bool parse_real(std::string_view text, double& out) {
    const std::string s = clean_number(text);
    const auto r = std::from_chars(s.data(), s.data() + s.size(), out);
    return !s.empty() && r.ec == std::errc() && r.ptr == s.data() + s.size();
}

bool parse_integer(std::string_view text, int base, int64_t& out) {
    std::string s = clean_number(text);
    const bool negative = s.starts_with('-');
    const size_t at = negative ? 1 : 0;
    const char mark = s.size() > at + 1 && s[at] == '0' ? static_cast<char>(s[at + 1] | 32) : '\0';
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (base == 0) base = marked ? marked : 10;
    if (marked == base) s.erase(at, 2);
    const auto r = std::from_chars(s.data(), s.data() + s.size(), out, base);
    return !s.empty() && r.ec == std::errc() && r.ptr == s.data() + s.size();
}

Result<Value> truncated(double d) {
    if (!(std::abs(d) < 9.2e18)) return failure("this number does not fit in 64 bits");
    return Value(static_cast<int64_t>(d));
}

Result<Value> filter_int(Call& c) {
    if (const Undefined* u = c.self.undefined()) return failure(describe(*u));
    const Value fallback = c.arg(0) ? *c.arg(0) : Value(int64_t{0});
    const int64_t base = NIBBLE_TRY(c.integer(1, 10));
    if (base != 0 && (base < 2 || base > 36)) return fallback;
    int64_t i = 0;
    double d = 0;
    if (c.self.as_integer(i)) return Value(i);
    if (const double* real = c.self.real())
        return std::isnan(*real) ? Result<Value>(fallback) : truncated(*real);
    const Text* text = c.self.text();
    if (!text) return fallback;
    if (!c.budget.spend_scan(text->size())) return c.budget.exhausted();  // it may be parsed twice
    if (parse_integer(text->view(), static_cast<int>(base), i)) return Value(i);
    if (parse_real(text->view(), d) && std::isfinite(d)) return truncated(d);
    return fallback;
}

Result<Value> filter_float(Call& c) {
    if (const Undefined* u = c.self.undefined()) return failure(describe(*u));
    double d = 0;
    if (c.self.as_number(d)) return Value(d);
    if (c.self.text() && parse_real(c.self.text()->view(), d)) return Value(d);
    return c.arg(0) ? *c.arg(0) : Value(0.0);
}

Result<Value> filter_abs(Call& c) {
    int64_t i = 0;
    if (c.self.as_integer(i)) return i < 0 ? negate(Value(i)) : Result<Value>(Value(i));
    if (const double* d = c.self.real()) return Value(std::abs(*d));
    return negate(c.self);  // fails, and says why
}

// Python's round(): correct on the exact binary value, ties to even.
double round_to(double d, int64_t digits) {
    if (!std::isfinite(d) || digits > 300) return d;
    if (digits < -400) return 0;
    if (digits < 0) {
        const double scale = std::pow(10.0, static_cast<double>(-digits));
        return std::isfinite(scale) ? std::nearbyint(d / scale) * scale : 0.0;
    }
    char buffer[700];
    const auto r =
        std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed, static_cast<int>(digits));
    double out = d;
    std::from_chars(buffer, r.ptr, out);
    return out;
}

Result<Value> filter_round(Call& c) {
    const int64_t digits = NIBBLE_TRY(c.integer(0, 0));
    const std::string method = c.arg(1) && c.arg(1)->text() ? c.arg(1)->text()->str() : "common";
    double d = 0;
    if (!c.self.as_number(d)) return negate(c.self);
    if (method == "common") {
        int64_t i = 0;
        if (c.self.as_integer(i) && digits >= 0) return Value(i);
        const double rounded = round_to(d, digits);
        return c.self.real() ? Result<Value>(Value(rounded)) : truncated(rounded);
    }
    if (method != "ceil" && method != "floor")
        return failure("the method of 'round' is common, ceil or floor");
    const double scale = std::pow(10.0, static_cast<double>(digits));
    return Value((method == "ceil" ? std::ceil(d * scale) : std::floor(d * scale)) / scale);
}

constexpr Builtin rows[] = {
    {"int", filter_int, {"default", "base"}},
    {"float", filter_float, {"default"}},
    {"abs", filter_abs},
    {"round", filter_round, {"precision", "method"}},
};

}  // namespace

std::span<const Builtin> number_filters() { return rows; }

}  // namespace nibble::jinja
