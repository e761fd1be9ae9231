// Strings by pattern, format or length; numbers by bounds.
// What cannot be kept to exactly is refused.
#include "src/text/grammar/schema_values.h"

#include <algorithm>
#include <cmath>

#include "ggml/base/cat.h"
#include "src/text/grammar/regex.h"
#include "src/text/grammar/schema_document.h"

namespace nibble {
namespace {

Result<std::optional<double>> bound(const Json& s, const char* key, const std::string& where) {
    if (!s.contains(key)) return std::optional<double>();
    if (!s[key].is_number()) return malformed(where, cat("'", key, "' is not a number"));
    return std::optional(s[key].get<double>());
}

}  // namespace

bool is_of_type(const Json& v, const std::set<std::string>& types) {
    const bool whole =
        v.is_number_integer() || (v.is_number() && std::trunc(v.get<double>()) == v.get<double>());
    return (v.is_null() && types.count("null")) || (v.is_boolean() && types.count("boolean")) ||
           (v.is_string() && types.count("string")) || (v.is_array() && types.count("array")) ||
           (v.is_object() && types.count("object")) || (v.is_number() && types.count("number")) ||
           (whole && types.count("integer"));
}

Result<int32_t> schema_count(const Json& s, const char* key, int32_t absent, const std::string& where) {
    if (!s.contains(key)) return absent;
    const Json& v = s[key];
    const double n = v.is_number() ? v.get<double>() : -1;
    if (n < 0 || std::trunc(n) != n) return malformed(where, cat("'", key, "' is not a count"));
    if (n > max_repeat) return refused(where, cat("'", key, "' is larger than ", max_repeat));
    return static_cast<int32_t>(n);
}

Result<ExprId> SchemaValues::string(const Json& s, const std::string& where) {
    const int32_t min = NIBBLE_TRY(schema_count(s, "minLength", 0, where));
    const int32_t max = NIBBLE_TRY(schema_count(s, "maxLength", unbounded, where));
    const bool lengths = s.contains("minLength") || s.contains("maxLength");
    if (s.contains("pattern") + s.contains("format") + lengths > 1)
        return refused(where, "'pattern', 'format' and lengths together are not supported",
                       "put the length into the pattern: {m,n}");
    if (s.contains("pattern")) {
        if (!s["pattern"].is_string()) return malformed(where, "'pattern' is not a string");
        RegexOptions options;
        options.write = JsonText::written;
        options.search = true;
        const std::string what = cat("schema ", where, "/pattern");
        return text_.quoted(NIBBLE_TRY(parse_regex(g_, s["pattern"].get<std::string>(), what, options)));
    }
    if (s.contains("format")) {
        if (!s["format"].is_string()) return malformed(where, "'format' is not a string");
        const auto format = s["format"].get<std::string>();
        const std::string_view regex = format_regex(format);
        if (regex.empty()) return refused(where, cat("the format '", format, "' is not supported"));
        return text_.quoted(NIBBLE_TRY(parse_regex(g_, regex, format)));
    }
    if (max != unbounded && max < min) return g_.choice({});
    return text_.string(min, max);
}

Result<ExprId> SchemaValues::integer(const Json& s, const std::string& where) {
    constexpr auto most = static_cast<double>(JsonText::largest);
    const auto clamped = [most](double v) { return static_cast<int64_t>(std::clamp(v, -most, most)); };
    int64_t min = -JsonText::largest, max = JsonText::largest;
    const auto exact = [&](const char* key, double rounded) {  // beyond 2^53 a double would be off
        return s[key].is_number_integer() && std::abs(rounded) <= most ? s[key].get<int64_t>()
                                                                       : clamped(rounded);
    };
    if (const auto v = NIBBLE_TRY(bound(s, "minimum", where))) min = exact("minimum", std::ceil(*v));
    if (const auto v = NIBBLE_TRY(bound(s, "maximum", where))) max = exact("maximum", std::floor(*v));
    if (const auto v = NIBBLE_TRY(bound(s, "exclusiveMinimum", where)))
        min = std::max(min, exact("exclusiveMinimum", std::floor(*v)) + 1);
    if (const auto v = NIBBLE_TRY(bound(s, "exclusiveMaximum", where)))
        max = std::min(max, exact("exclusiveMaximum", std::ceil(*v)) - 1);
    if (min > JsonText::largest || max < -JsonText::largest)
        return refused(where, "integers have at most 18 digits", "use bounds that leave some of those");
    return text_.integer(min, max);
}

Result<ExprId> SchemaValues::number(const Json& s, const std::string& where) {
    std::optional<JsonText::Bound> ends[2];
    for (const bool upper : {false, true})
        for (const bool open : {false, true}) {
            const char* const key =
                upper ? (open ? "exclusiveMaximum" : "maximum") : (open ? "exclusiveMinimum" : "minimum");
            const auto v = NIBBLE_TRY(bound(s, key, where));
            if (!v) continue;
            if (std::trunc(*v) != *v || std::abs(*v) > 1e15)
                return refused(where, cat("'", key, "' of ", *v, " for a number: bounds must be whole"),
                               "use a whole bound, or integer");
            const JsonText::Bound b{static_cast<int64_t>(*v), open};
            auto& end = ends[upper];
            const bool stricter = !end || (upper ? b.value < end->value : b.value > end->value) ||
                                  (b.value == end->value && open);
            if (stricter) end = b;
        }
    return text_.number(ends[0], ends[1]);
}

}  // namespace nibble
