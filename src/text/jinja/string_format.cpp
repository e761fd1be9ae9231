// Formatting of strings. Both syntaxes are parsed into one Spec, which one function applies.
// Source of the rules: The Python Standard Library, "Format Specification Mini-Language" and "printf-style".
#include "src/text/jinja/string_format.h"

#include <charconv>

#include "ggml/base/cat.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/print.h"
#include "src/text/jinja/unicode.h"

namespace nibble::jinja {
namespace {

constexpr int max_width = 4096;  // more is an attack, not a layout
constexpr int max_precision = 100;

struct Spec {
    char fill = ' ', align = 0, sign = 0, conversion = 's';
    bool grouping = false;
    int width = 0, precision = -1;
};

Error unsupported_spec(std::string_view spec) {
    return failure(cat("the format '", spec, "' is not supported"), ErrorCode::unsupported);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads digits at `at`; -1 when there are none. Large numbers saturate.
int number(std::string_view s, size_t& at) {
    int n = -1;
    for (; at < s.size() && is_digit(s[at]); ++at) n = std::min(std::max(n, 0) * 10 + (s[at] - '0'), 1 << 20);
    return n;
}

void group_thousands(std::string& digits) {
    const size_t first = digits.find_first_not_of("-+ ");
    const size_t end = std::min(digits.find('.'), digits.size());
    if (first == digits.npos) return;
    for (size_t at = end; at > first + 3;)
        digits.insert(digits.begin() + static_cast<std::ptrdiff_t>(at -= 3), ',');
}

Result<std::string> number_text(const Value& v, const Spec& spec) {
    char buffer[512];
    const auto done = [&](std::to_chars_result r) { return std::string(buffer, r.ptr); };
    char* const end = buffer + sizeof buffer;
    int64_t i = 0;
    double d = 0;
    if (!v.as_number(d))
        return failure(cat("'%", std::string(1, spec.conversion), "' needs a number, not ", type_name(v)));
    switch (spec.conversion) {
        case 'd':
        case 'i':
            if (!v.as_integer(i)) {
                if (!(d > -9.2e18 && d < 9.2e18)) return failure("this number does not fit in 64 bits");
                i = static_cast<int64_t>(d);
            }
            return done(std::to_chars(buffer, end, i));
        case 'x':
        case 'o':
        case 'b':
            if (!v.as_integer(i))
                return failure(cat("'", std::string(1, spec.conversion), "' needs an integer"));
            return done(std::to_chars(buffer, end, i,
                                      spec.conversion == 'x'   ? 16
                                      : spec.conversion == 'o' ? 8
                                                               : 2));
        default:
            break;
    }
    const auto format = spec.conversion == 'e'   ? std::chars_format::scientific
                        : spec.conversion == 'g' ? std::chars_format::general
                                                 : std::chars_format::fixed;
    if (spec.conversion == '%') d *= 100;
    std::string s = done(std::to_chars(buffer, end, d, format, spec.precision < 0 ? 6 : spec.precision));
    if (spec.conversion == '%') s += '%';
    return s;
}

Result<void> apply(Budget& budget, Text& out, const Value& v, Spec spec) {
    if (spec.width > max_width || spec.precision > max_precision) {
        return failure(cat("a width over ", max_width, " or a precision over ", max_precision),
                       ErrorCode::unsupported);
    }
    Text body;
    const bool numeric = spec.conversion != 's' && spec.conversion != 'r';
    if (numeric) {
        std::string s = NIBBLE_TRY(number_text(v, spec));
        if (spec.grouping) group_thousands(s);
        if (spec.sign && !s.starts_with('-')) body.append({&spec.sign, 1}, false);
        body.append(s, false);
    } else {
        NIBBLE_TRY(spec.conversion == 'r' ? print_repr(budget, body, v) : print(budget, body, v));
        if (spec.precision >= 0)
            body = body.slice(0, byte_offset(body.view(), static_cast<size_t>(spec.precision)));
    }
    const int length = static_cast<int>(std::min<size_t>(count_code_points(body.view()), max_width));
    const int pad = std::max(spec.width - length, 0);
    const char align = spec.align ? spec.align : numeric ? '>' : '<';
    const int before = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    if (!budget.spend_bytes(body.size() + static_cast<size_t>(pad))) return budget.exhausted();
    if (align == '=') {  // padding between the sign and the digits
        const size_t sign = body.view().find_first_not_of("+- ") == 1 ? 1 : 0;
        out.append(body, 0, sign);
        out.append(std::string(static_cast<size_t>(pad), spec.fill), false);
        out.append(body, sign, body.size());
        return {};
    }
    out.append(std::string(static_cast<size_t>(before), spec.fill), false);
    out.append(body);
    out.append(std::string(static_cast<size_t>(pad - before), spec.fill), false);
    return {};
}

Result<Spec> parse_brace_spec(std::string_view s, const Value& v) {
    Spec spec;
    int64_t i = 0;
    // Without a type a number prints as str() does, but is aligned to the right.
    if (v.as_integer(i) && !v.is(Kind::boolean)) spec.conversion = 'd';
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    size_t at = 0;
    if (s.size() > 1 && is_align(s[1])) {
        spec.fill = s[0];
        spec.align = s[1];
        at = 2;
    } else if (!s.empty() && is_align(s[0])) {
        spec.align = s[at++];
    }
    if (at < s.size() && (s[at] == '+' || s[at] == '-' || s[at] == ' ')) spec.sign = s[at++];
    if (spec.sign == '-') spec.sign = 0;
    if (at < s.size() && s[at] == '0' && !spec.align) {
        spec.fill = '0';
        spec.align = '=';
    }
    spec.width = std::max(number(s, at), 0);
    if (at < s.size() && s[at] == ',') spec.grouping = ++at > 0;
    if (at < s.size() && s[at] == '.') {
        spec.precision = number(s, ++at);
        if (spec.precision < 0) return unsupported_spec(s);
        if (v.real()) spec.conversion = 'g';
    }
    if (v.real() && !spec.align) spec.align = '>';
    if (at < s.size() && std::string_view("sdxobefg%").find(s[at]) != std::string_view::npos)
        spec.conversion = s[at++];
    if (at != s.size()) return unsupported_spec(s);
    return spec;
}

// Follows ".name" and "[key]" of a replacement field.
Result<Value> follow(Budget& budget, Value v, std::string_view path) {
    while (!path.empty()) {
        const bool item = path[0] == '[';
        const size_t end = item ? path.find(']') : std::min(path.find_first_of(".[", 1), path.size());
        if (end == path.npos) return failure("a ']' is missing in a replacement field");
        const std::string_view name = path.substr(1, end - 1);
        path.remove_prefix(item ? end + 1 : end);
        int64_t index = 0;
        const auto r = std::from_chars(name.data(), name.data() + name.size(), index);
        const bool is_index =
            item && !name.empty() && r.ec == std::errc() && r.ptr == name.data() + name.size();
        const Value key = is_index ? Value(index) : make_text(std::string(name));
        auto found = NIBBLE_TRY(element(budget, v, key));
        if (!found) return failure(cat("the ", type_name(v), " has no '", name, "' to format"));
        v = std::move(*found);
    }
    return v;
}

class BraceFormatter {
  public:
    BraceFormatter(Budget& budget, std::span<const Value> positional, const NamedValues& named)
        : budget_(budget), positional_(positional), named_(named) {}

    // `field` is what stands between the braces: name, optional !conversion, optional :spec.
    Result<void> replace(Text& out, std::string_view field) {
        const size_t colon = field.find(':');
        const std::string_view spec = colon == field.npos ? std::string_view() : field.substr(colon + 1);
        std::string_view name = field.substr(0, colon);
        char conversion = 0;
        if (const size_t bang = name.find('!'); bang != name.npos) {
            if (bang + 2 != name.size()) return unsupported_spec(field);
            conversion = name[bang + 1];
            name = name.substr(0, bang);
        }
        Value v = NIBBLE_TRY(lookup(name));
        if (conversion == 'r' || conversion == 's') {
            Text t;
            NIBBLE_TRY(conversion == 'r' ? print_repr(budget_, t, v) : print(budget_, t, v));
            v = make_text(std::move(t));
        } else if (conversion != 0) {
            return unsupported_spec(field);
        }
        if (spec.empty()) return print(budget_, out, v);
        return apply(budget_, out, v, NIBBLE_TRY(parse_brace_spec(spec, v)));
    }

  private:
    Result<Value> lookup(std::string_view name) {
        const size_t end = std::min(name.find_first_of(".["), name.size());
        const std::string_view head = name.substr(0, end);
        size_t index = next_;
        if (head.empty()) {
            ++next_;
        } else if (is_digit(head[0])) {
            size_t at = 0;
            index = static_cast<size_t>(number(head, at));
        } else {
            if (!budget_.spend_lookup(named_.size(), head.size())) return budget_.exhausted();
            for (const auto& [key, value] : named_) {
                if (key == head) return follow(budget_, value, name.substr(end));
            }
            return failure(cat("nothing named '", head, "' to format"));
        }
        if (index >= positional_.size()) return failure(cat("no value number ", index, " to format"));
        return follow(budget_, positional_[index], name.substr(end));
    }

    Budget& budget_;
    std::span<const Value> positional_;
    const NamedValues& named_;
    size_t next_ = 0;
};

}  // namespace

Result<Value> brace_format(Budget& budget, const Text& pattern, std::span<const Value> positional,
                           const NamedValues& named) {
    BraceFormatter formatter(budget, positional, named);
    const std::string_view s = pattern.view();
    Text out;
    for (size_t at = 0; at < s.size();) {
        if (!budget.spend(1)) return budget.exhausted();
        const size_t brace = std::min(s.find_first_of("{}", at), s.size());
        out.append(pattern, at, brace);
        at = brace;
        if (at == s.size()) break;
        if (at + 1 < s.size() && s[at + 1] == s[at]) {  // {{ and }} stand for the braces
            out.append(pattern, at, at + 1);
            at += 2;
            continue;
        }
        const size_t end = s[at] == '{' ? s.find('}', at) : s.npos;
        if (end == s.npos) return failure("a single brace in a format string");
        NIBBLE_TRY(formatter.replace(out, s.substr(at + 1, end - at - 1)));
        at = end + 1;
    }
    return budget.text(std::move(out));
}

Result<Value> percent_format(Budget& budget, const Text& pattern, const Value& arguments) {
    const List* list = arguments.list();
    const bool tuple = list && list->flavor == List::Flavor::tuple;
    const std::span<const Value> values =
        tuple ? std::span<const Value>(list->items) : std::span(&arguments, 1);
    const std::string_view s = pattern.view();
    size_t next = 0;
    Text out;
    if (!budget.spend_scan(s.size())) return budget.exhausted();
    for (size_t at = 0; at < s.size();) {
        if (!budget.spend(1)) return budget.exhausted();
        const size_t percent = std::min(s.find('%', at), s.size());
        out.append(pattern, at, percent);
        at = percent + 1;
        if (percent == s.size()) break;
        Spec spec;
        const Value* v = nullptr;
        if (at < s.size() && s[at] == '(') {
            const size_t close = s.find(')', at);
            const std::string_view key = s.substr(at + 1, close - at - 1);
            const uint64_t entries = arguments.dict() ? arguments.dict()->entries.size() : 0;
            if (!budget.spend_lookup(entries, key.size())) return budget.exhausted();
            v = arguments.dict() && close != s.npos ? arguments.dict()->find(key) : nullptr;
            if (!v) return failure(cat("nothing named '", key, "' to format"));
            next = values.size();
            at = close + 1;
        }
        for (; at < s.size() && std::string_view("-0+ ").find(s[at]) != std::string_view::npos; ++at) {
            if (s[at] == '-') spec.align = '<';
            if (s[at] == '0' && !spec.align) spec.fill = '0', spec.align = '=';
            if (s[at] == '+' || s[at] == ' ') spec.sign = s[at];
        }
        spec.width = std::max(number(s, at), 0);
        if (at < s.size() && s[at] == '.') spec.precision = std::max(number(s, ++at), 0);
        if (at >= s.size()) return failure("a format string ends in '%'");
        spec.conversion = s[at++];
        if (spec.conversion == '%') {
            out.append("%", false);
            continue;
        }
        if (std::string_view("srdixofeg").find(spec.conversion) == std::string_view::npos) {
            return unsupported_spec(s.substr(percent, at - percent));
        }
        if (!v && next >= values.size())
            return failure("a format string needs more values than it was given");
        if (!v) v = &values[next++];
        if (spec.conversion == 's' || spec.conversion == 'r') {
            spec.align = spec.align == '<' ? '<' : '>';
            spec.fill = ' ';
        }
        NIBBLE_TRY(apply(budget, out, *v, spec));
    }
    if (next < values.size() && !arguments.dict() && (tuple || !list)) {
        return failure("a format string was given more values than it uses");
    }
    return budget.text(std::move(out));
}

}  // namespace nibble::jinja
