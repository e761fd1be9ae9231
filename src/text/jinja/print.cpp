// str(), repr() and JSON output of values.
// Recursion is bounded by the nesting that budget.h allows when a container is made.
#include "src/text/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "ggml/base/cat.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/unicode.h"

namespace nibble::jinja {
namespace {

constexpr std::string_view hex_digits = "0123456789abcdef";

void append_hex(std::string& s, uint32_t value, int digits) {
    for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) s += hex_digits[value >> shift & 15];
}

// Calls sink(bytes, untrusted) for each run of equal trust, in order.
template <class Sink>
void for_each_run(const Text& text, Sink sink) {
    size_t at = 0;
    for (const ByteSpan& span : text.untrusted()) {
        if (at < span.begin) sink(text.view().substr(at, span.begin - at), false);
        sink(text.view().substr(span.begin, span.end - span.begin), true);
        at = span.end;
    }
    if (at < text.size()) sink(text.view().substr(at), false);
}

void repr_text(Text& out, const Text& text) {
    const std::string_view all = text.view();
    const char quote = all.find('\'') != all.npos && all.find('"') == all.npos ? '"' : '\'';
    out.append({&quote, 1}, false);
    for_each_run(text, [&](std::string_view run, bool untrusted) {
        std::string s;
        for (size_t at = 0; at < run.size();) {
            const CodePoint c = decode(run, at);
            const auto raw = run.substr(at, c.length);
            at += c.length;
            if (c.value == static_cast<unsigned char>(quote) || c.value == '\\') {
                s += '\\';
                s += raw;
            } else if (c.value == '\n') {
                s += "\\n";
            } else if (c.value == '\r') {
                s += "\\r";
            } else if (c.value == '\t') {
                s += "\\t";
            } else if (is_printable(c.value) || (c.length == 1 && c.value >= 0x100)) {
                s += raw;
            } else {
                s += c.value < 0x100 ? "\\x" : c.value < 0x10000 ? "\\u" : "\\U";
                append_hex(s, c.value, c.value < 0x100 ? 2 : c.value < 0x10000 ? 4 : 8);
            }
        }
        out.append(s, untrusted);
    });
    out.append({&quote, 1}, false);
}

std::string_view object_name(const Object& o) {
    switch (o.type) {
        case Object::Type::name_space:
            return "<Namespace>";
        case Object::Type::macro:
            return "<Macro>";
        case Object::Type::loop:
            return "<LoopContext>";
        case Object::Type::bound_method:
            return "<built-in method>";
        case Object::Type::function:
            return "<function>";
        case Object::Type::cycler:
            return "<Cycler>";
        case Object::Type::joiner:
            break;
    }
    return "<Joiner>";
}

Result<void> repr_list(Budget& budget, Text& out, const List& list) {
    const bool tuple = list.flavor == List::Flavor::tuple;
    if (list.flavor == List::Flavor::generator) {
        out.append("<generator>", false);
        return {};
    }
    // Brackets and commas; what is between them pays for itself.
    if (!budget.spend_bytes(2 + 2 * list.items.size())) return budget.exhausted();
    out.append(tuple ? "(" : "[", false);
    for (size_t i = 0; i < list.items.size(); ++i) {
        if (i > 0) out.append(", ", false);
        NIBBLE_TRY(print_repr(budget, out, list.items[i]));
    }
    out.append(tuple ? (list.items.size() == 1 ? ",)" : ")") : "]", false);
    return {};
}

// Charges for what was appended since `before`; containers may repeat a string many times.
Result<void> pay(Budget& budget, const Text& out, size_t before) {
    if (!budget.spend_scan(out.size() - before) || !budget.spend_bytes(out.size() - before))
        return budget.exhausted();
    return {};
}

// --- JSON ---

void json_string(Text& out, const Text& text, bool ascii_only) {
    out.append("\"", false);
    for_each_run(text, [&](std::string_view run, bool untrusted) {
        std::string s;
        s.reserve(run.size());
        for (size_t at = 0; at < run.size(); ++at) {
            const uint8_t byte = static_cast<uint8_t>(run[at]);
            if (byte == '"' || byte == '\\') {
                s += '\\';
                s += run[at];
            } else if (byte < 0x20) {
                constexpr std::string_view controls = "\b\t\n\f\r", letters = "btnfr";
                const size_t known = controls.find(run[at]);
                if (known != controls.npos) {
                    s += '\\';
                    s += letters[known];
                } else {
                    s += "\\u";
                    append_hex(s, byte, 4);
                }
            } else if (byte < 0x80 || !ascii_only) {
                s += run[at];
            } else {
                const CodePoint c = decode(run, at);
                at += c.length - 1;
                const bool pair = c.value >= 0x10000;
                s += "\\u";
                append_hex(s, pair ? 0xD800 + ((c.value - 0x10000) >> 10) : c.value, 4);
                if (pair) s += "\\u";
                if (pair) append_hex(s, 0xDC00 + ((c.value - 0x10000) & 0x3FF), 4);
            }
        }
        out.append(s, untrusted);
    });
    out.append("\"", false);
}

class JsonPrinter {
  public:
    JsonPrinter(Budget& budget, Text& out, const JsonStyle& style)
        : budget_(budget), out_(out), style_(style) {}

    Result<void> value(const Value& v, size_t level) {
        const size_t before = out_.size();
        switch (v.kind()) {
            case Kind::none:
                out_.append("null", false);
                break;
            case Kind::boolean:
                out_.append(truthy(v) ? "true" : "false", false);
                break;
            case Kind::integer:
                out_.append(cat(std::get<int64_t>(v.data())), false);
                break;
            case Kind::real:
                out_.append(number(*v.real()), false);
                break;
            case Kind::text:
                json_string(out_, *v.text(), style_.ascii_only);
                break;
            case Kind::list:
                return list(v, level);
            case Kind::dict:
                return dict(*v.dict(), level);
            case Kind::undefined:
                return failure(cat(describe(*v.undefined()), ": it cannot be written as JSON"));
            case Kind::object:
                return failure(cat("a ", type_name(v), " cannot be written as JSON"));
        }
        return pay(budget_, out_, before);
    }

  private:
    static std::string number(double d) {
        if (std::isnan(d)) return "NaN";
        if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
        return format_real(d);
    }

    Result<void> new_line(size_t level) {
        if (!style_.pretty) return {};
        const size_t before = out_.size();
        out_.append("\n", false);
        for (size_t i = 0; i < level; ++i) out_.append(style_.indent, false);
        return pay(budget_, out_, before);
    }

    Result<void> separator(std::string_view text) {
        const size_t before = out_.size();
        out_.append(text, false);
        return pay(budget_, out_, before);
    }

    Result<void> list(const Value& v, size_t level) {
        const List& list = *v.list();
        if (list.flavor == List::Flavor::generator || list.flavor == List::Flavor::view) {
            return failure(cat("a ", type_name(v), " cannot be written as JSON"), ErrorCode::invalid_argument,
                           "make it a list first");
        }
        out_.append("[", false);
        for (size_t i = 0; i < list.items.size(); ++i) {
            if (i > 0) NIBBLE_TRY(separator(style_.item_separator));
            NIBBLE_TRY(new_line(level + 1));
            NIBBLE_TRY(value(list.items[i], level + 1));
        }
        if (!list.items.empty()) NIBBLE_TRY(new_line(level));
        out_.append("]", false);
        return {};
    }

    Result<void> key(const Value& k) {
        if (k.text()) {
            json_string(out_, *k.text(), style_.ascii_only);
            return {};
        }
        if (k.is_undefined() || k.list() || k.object()) {
            return failure(cat("a ", type_name(k), " cannot be a key in JSON"));
        }
        out_.append("\"", false);
        NIBBLE_TRY(value(k, 0));
        out_.append("\"", false);
        return {};
    }

    Result<void> dict(const Dict& dict, size_t level) {
        std::vector<const std::pair<Value, Value>*> entries;
        if (!budget_.spend(dict.entries.size())) return budget_.exhausted();
        for (const auto& entry : dict.entries) entries.push_back(&entry);
        if (style_.sort_keys) {
            for (const auto* entry : entries) {
                if (!entry->first.text()) return failure("sort_keys works on dicts whose keys are strings");
            }
            std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
                return a->first.text()->view() < b->first.text()->view();
            });
        }
        out_.append("{", false);
        for (size_t i = 0; i < entries.size(); ++i) {
            if (i > 0) NIBBLE_TRY(separator(style_.item_separator));
            NIBBLE_TRY(new_line(level + 1));
            NIBBLE_TRY(key(entries[i]->first));
            NIBBLE_TRY(separator(style_.key_separator));
            NIBBLE_TRY(value(entries[i]->second, level + 1));
        }
        if (!entries.empty()) NIBBLE_TRY(new_line(level));
        out_.append("}", false);
        return {};
    }

    Budget& budget_;
    Text& out_;
    const JsonStyle& style_;
};

}  // namespace

std::string format_real(double d) {
    if (std::isnan(d)) return "nan";
    if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
    char buffer[64];
    const auto shortest = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
    const std::string_view s(buffer, static_cast<size_t>(shortest.ptr - buffer));
    const size_t e = s.find('e');
    int exponent = 0;
    std::from_chars(s.data() + e + (s[e + 1] == '+' ? 2 : 1), s.data() + s.size(), exponent);
    if (exponent < -4 || exponent >= 16) return std::string(s);
    const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed);
    std::string out(buffer, fixed.ptr);
    if (out.find('.') == out.npos) out += ".0";
    return out;
}

Result<void> print_repr(Budget& budget, Text& out, const Value& v) {
    const size_t before = out.size();
    if (v.text()) {
        if (!budget.spend(v.text()->size() / 8)) return budget.exhausted();  // escaped one by one
        repr_text(out, *v.text());
    } else if (const List* list = v.list()) {
        return repr_list(budget, out, *list);
    } else if (const Dict* dict = v.dict()) {
        out.append("{", false);
        for (size_t i = 0; i < dict->entries.size(); ++i) {
            if (i > 0) out.append(", ", false);
            NIBBLE_TRY(print_repr(budget, out, dict->entries[i].first));
            out.append(": ", false);
            NIBBLE_TRY(print_repr(budget, out, dict->entries[i].second));
        }
        out.append("}", false);
    } else if (v.is_undefined()) {
        out.append("Undefined", false);
    } else {
        return print(budget, out, v);
    }
    return pay(budget, out, before);
}

Result<void> print(Budget& budget, Text& out, const Value& v) {
    const size_t before = out.size();
    switch (v.kind()) {
        case Kind::undefined:
            break;
        case Kind::none:
            out.append("None", false);
            break;
        case Kind::boolean:
            out.append(truthy(v) ? "True" : "False", false);
            break;
        case Kind::integer:
            out.append(cat(std::get<int64_t>(v.data())), false);
            break;
        case Kind::real:
            out.append(format_real(*v.real()), false);
            break;
        case Kind::text:
            out.append(*v.text());
            break;
        case Kind::object:
            out.append(object_name(*v.object()), false);
            break;
        case Kind::list:
        case Kind::dict:
            return print_repr(budget, out, v);
    }
    return pay(budget, out, before);
}

Result<Text> to_text(Budget& budget, const Value& v) {
    Text out;
    NIBBLE_TRY(print(budget, out, v));
    return out;
}

Result<TextRef> as_text(Budget& budget, const Value& v) {
    if (const TextRef* t = std::get_if<TextRef>(&v.data())) return *t;
    return TextRef(std::make_shared<Text>(NIBBLE_TRY(to_text(budget, v))));
}

Result<void> print_json(Budget& budget, Text& out, const Value& v, const JsonStyle& style) {
    return JsonPrinter(budget, out, style).value(v, 0);
}

}  // namespace nibble::jinja
