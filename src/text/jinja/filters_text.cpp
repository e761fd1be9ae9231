// Filters on strings, and the string operations that filters and methods share.
// Each builds its result from pieces of the input, so that untrusted spans move along.
#include <algorithm>

#include "ggml/base/cat.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/print.h"
#include "src/text/jinja/search.h"
#include "src/text/jinja/unicode.h"

namespace nibble::jinja {

Result<Value> strip(Call& call, bool left, bool right) {
    const TextRef text = NIBBLE_TRY(as_text(call.budget, call.self));
    const bool custom = call.arg(0) && !call.arg(0)->is_none();
    std::vector<uint32_t> set;  // sorted
    if (custom) {
        const TextRef chars = NIBBLE_TRY(as_text(call.budget, *call.arg(0)));
        if (!call.budget.spend(chars->size())) return call.budget.exhausted();
        for (size_t i = 0; i < chars->size(); i += decode(chars->view(), i).length)
            set.push_back(decode(chars->view(), i).value);
        std::sort(set.begin(), set.end());
    }
    const std::string_view s = text->view();
    const auto drop = [&](size_t at) {
        const uint32_t c = decode(s, at).value;
        return custom ? std::binary_search(set.begin(), set.end(), c) : is_space(c);
    };
    size_t begin = 0, end = s.size();
    while (left && begin < end && drop(begin)) begin += decode(s, begin).length;
    while (right && end > begin && drop(previous(s, end))) end = previous(s, end);
    if (begin == 0 && end == s.size()) return Value(text);
    return call.budget.text(text->slice(begin, end));
}

Result<Value> map_characters(Budget& budget, const Text& text,
                             const std::function<void(uint32_t, std::string&)>& map) {
    if (!budget.spend(text.size() / 4)) return budget.exhausted();  // much slower than a scan
    Text out;
    out.reserve(text.size());
    std::string one;
    for (size_t at = 0; at < text.size();) {
        const CodePoint c = decode(text.view(), at);
        one.clear();
        map(c.value, one);
        out.append(one, text.untrusted_at(at));
        at += c.length;
    }
    return budget.text(std::move(out));
}

Result<Value> map_case(Budget& budget, const Text& text, uint32_t (*map)(uint32_t)) {
    return map_characters(budget, text, [map](uint32_t c, std::string& out) {
        if (c == 0xDF && map == to_upper) {
            out += "SS";
        } else {
            encode(map(c), out);
        }
    });
}

// The first code point in upper case, the rest in lower case.
Result<Value> capitalize(Budget& budget, const Text& text) {
    const size_t first = byte_offset(text.view(), 1);
    const Value head = NIBBLE_TRY(map_case(budget, text.slice(0, first), to_upper));
    const Value tail = NIBBLE_TRY(map_case(budget, text.slice(first, text.size()), to_lower));
    Text out = *head.text();
    out.append(*tail.text());
    return budget.text(std::move(out));
}

// `left_of`: how many of the missing columns go to the left, given the padding; -1 centers as Python does.
Result<Value> center(Budget& budget, const Text& text, int64_t width, int64_t left_of,
                     std::string_view fill) {
    const auto length = static_cast<int64_t>(count_code_points(text.view()));
    const int64_t pad = width > length ? width - length : 0;
    const auto columns = static_cast<uint64_t>(pad);
    if (!budget.spend_bytes(columns * fill.size()) || !budget.spend(columns / 4)) return budget.exhausted();
    const int64_t left = left_of < 0 ? pad / 2 + (pad & width & 1) : std::min(left_of, pad);
    Text out;
    for (int64_t i = 0; i < left; ++i) out.append(fill, false);
    out.append(text);
    for (int64_t i = left; i < pad; ++i) out.append(fill, false);
    return budget.text(std::move(out));
}

Result<Value> replace(Budget& budget, const Text& text, const Text& from, const Text& to, int64_t count) {
    const std::string_view s = text.view();
    uint64_t left = count < 0 ? UINT64_MAX : static_cast<uint64_t>(count);
    Search search = NIBBLE_TRY(Search::start(budget, s, from.view()));
    Text out;
    size_t at = 0;
    while (left > 0) {
        const size_t found = from.empty() ? at : search.next();
        if (found == s.npos) break;
        out.append(text, at, found);
        out.append(to);
        if (!budget.spend(1) || !budget.spend_bytes(to.size())) return budget.exhausted();
        --left;
        at = found + from.size();
        if (!from.empty()) continue;
        if (at == s.size()) break;  // an empty pattern matches between all characters
        const size_t next = at + decode(s, at).length;
        out.append(text, at, next);
        at = next;
    }
    if (at == 0 && out.empty()) return budget.text(text);
    out.append(text, at, s.size());
    return budget.text(std::move(out));
}

Result<Value> join(Budget& budget, const Text& separator, const std::vector<Value>& items, bool strict) {
    Text out;
    for (size_t i = 0; i < items.size(); ++i) {
        if (strict && !items[i].text()) return failure(cat("join needs strings, not ", type_name(items[i])));
        if (!budget.spend_bytes(separator.size())) return budget.exhausted();
        if (i > 0) out.append(separator);
        NIBBLE_TRY(print(budget, out, items[i]));
    }
    return make_text(std::move(out));
}

std::vector<std::pair<size_t, size_t>> split_lines(const Text& text) {
    std::vector<std::pair<size_t, size_t>> lines;
    const std::string_view s = text.view();
    size_t begin = 0;
    for (size_t at = 0; at < s.size();) {
        const CodePoint c = decode(s, at);
        const size_t end = at;
        at += c.length;
        if (!is_line_end(c.value)) continue;
        lines.emplace_back(begin, end);
        if (c.value == '\r' && at < s.size() && s[at] == '\n') ++at;
        begin = at;
    }
    if (begin < s.size()) lines.emplace_back(begin, s.size());
    return lines;
}

namespace {

Result<Value> filter_string(Call& c) { return Value(NIBBLE_TRY(as_text(c.budget, c.self))); }
Result<Value> filter_upper(Call& c) {
    return map_case(c.budget, *NIBBLE_TRY(as_text(c.budget, c.self)), to_upper);
}
Result<Value> filter_lower(Call& c) {
    return map_case(c.budget, *NIBBLE_TRY(as_text(c.budget, c.self)), to_lower);
}
Result<Value> filter_capitalize(Call& c) {
    return capitalize(c.budget, *NIBBLE_TRY(as_text(c.budget, c.self)));
}
Result<Value> filter_trim(Call& c) { return strip(c, true, true); }

// A word starts after white space or one of - ( { [ <, unlike the method of the same name.
Result<Value> filter_title(Call& c) {
    const TextRef text = NIBBLE_TRY(as_text(c.budget, c.self));
    bool start = true;
    return map_characters(c.budget, *text, [&start](uint32_t p, std::string& out) {
        encode(start ? to_upper(p) : to_lower(p), out);
        start = is_space(p) ||
                (p < 0x80 && std::string_view("-({[<").find(static_cast<char>(p)) != std::string_view::npos);
    });
}

Result<Value> filter_center(Call& c) {
    return center(c.budget, *NIBBLE_TRY(as_text(c.budget, c.self)), NIBBLE_TRY(c.integer(0, 80)), -1, " ");
}

Result<Value> filter_replace(Call& c) {
    const TextRef text = NIBBLE_TRY(as_text(c.budget, c.self));
    const TextRef from = NIBBLE_TRY(c.text(0, "")), to = NIBBLE_TRY(c.text(1, ""));
    const bool all = !c.arg(2) || c.arg(2)->is_none();
    return replace(c.budget, *text, *from, *to, all ? -1 : NIBBLE_TRY(c.integer(2, -1)));
}

Result<Value> filter_indent(Call& c) {
    if (const Undefined* u = c.self.undefined()) return failure(describe(*u));
    if (!c.self.text()) return failure(cat("'indent' needs a string, not ", type_name(c.self)));
    Text text = *c.self.text(), indent;
    if (c.arg(0) && c.arg(0)->text()) {
        indent = *c.arg(0)->text();
    } else {
        const int64_t width = NIBBLE_TRY(c.integer(0, 4));
        if (width > 4096) return failure("an indent of more than 4096 columns", ErrorCode::unsupported);
        indent.append(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), false);
    }
    const bool first = c.flag(1, false), blank = c.flag(2, false);
    text.append("\n", false);  // so that a line end at the end of the text stays
    Text out;
    const auto lines = split_lines(text);
    if (!c.budget.spend(lines.size())) return c.budget.exhausted();
    for (size_t i = 0; i < lines.size(); ++i) {
        const bool empty = lines[i].first == lines[i].second;
        if (!c.budget.spend_bytes(indent.size())) return c.budget.exhausted();
        if (i > 0) out.append("\n", false);
        if (i == 0 ? first : blank || !empty) out.append(indent);
        out.append(text, lines[i].first, lines[i].second);
    }
    return c.budget.text(std::move(out));
}

Result<Value> filter_escape(Call& c) {
    const TextRef text = NIBBLE_TRY(as_text(c.budget, c.self));
    constexpr std::string_view special = "&<>'\"";
    constexpr std::string_view entities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (!c.budget.spend(text->size() / 8)) return c.budget.exhausted();
    Text out;
    for (size_t at = 0; at < text->size();) {
        const size_t end = std::min(text->view().find_first_of(special, at), text->size());
        out.append(*text, at, end);
        at = end;
        if (at == text->size()) break;
        out.append(entities[special.find(text->view()[at])], text->untrusted_at(at));
        ++at;
    }
    return c.budget.text(std::move(out));
}

Result<Value> filter_wordcount(Call& c) {
    const TextRef text = NIBBLE_TRY(as_text(c.budget, c.self));
    int64_t words = 0;
    bool inside = false;
    for (size_t at = 0; at < text->size();) {
        const CodePoint p = decode(text->view(), at);
        const bool word = is_letter(p.value) || (p.value >= '0' && p.value <= '9') || p.value == '_';
        words += word && !inside;
        inside = word;
        at += p.length;
    }
    return Value(words);
}

Result<Value> filter_format(Call& c) {
    const TextRef pattern = NIBBLE_TRY(as_text(c.budget, c.self));
    if (!c.raw.named.empty() && !c.raw.positional.empty())
        return failure("'format' takes positional or named values, not both");
    if (c.raw.named.empty()) {
        return percent_format(c.budget, *pattern,
                              NIBBLE_TRY(c.budget.list(c.raw.positional, List::Flavor::tuple)));
    }
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [name, value] : c.raw.named) entries.emplace_back(make_text(name), value);
    return percent_format(c.budget, *pattern, NIBBLE_TRY(c.budget.dict(std::move(entries))));
}

Result<Value> filter_tojson(Call& c) {
    JsonStyle style;
    style.ascii_only = c.flag(0, false);
    style.sort_keys = c.flag(3, false);
    if (const Value* indent = c.arg(1); indent && !indent->is_none()) {
        style.pretty = true;
        style.item_separator.resize(1);  // ","
        if (indent->text()) {
            style.indent = indent->text()->str();
        } else {
            const int64_t width = NIBBLE_TRY(c.integer(1, 0));
            if (width > 4096) return failure("an indent of more than 4096 columns", ErrorCode::unsupported);
            style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
        }
    }
    if (const Value* separators = c.arg(2); separators && !separators->is_none()) {
        const List* pair = separators->list();
        if (!pair || pair->items.size() != 2 || !pair->items[0].text() || !pair->items[1].text()) {
            return failure("the separators of 'tojson' are a pair of strings");
        }
        style.item_separator = pair->items[0].text()->str();
        style.key_separator = pair->items[1].text()->str();
    }
    Text out;
    NIBBLE_TRY(print_json(c.budget, out, c.self, style));
    return make_text(std::move(out));
}

constexpr Builtin rows[] = {
    {"string", filter_string},
    {"safe", filter_string},
    {"upper", filter_upper},
    {"lower", filter_lower},
    {"capitalize", filter_capitalize},
    {"title", filter_title},
    {"trim", filter_trim, {"chars"}},
    {"center", filter_center, {"width"}},
    {"replace", filter_replace, {"old", "new", "count"}, 2},
    {"indent", filter_indent, {"width", "first", "blank"}},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"wordcount", filter_wordcount},
    {"format", filter_format, {}, 0, true},
    {"tojson", filter_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}},
};

}  // namespace

std::span<const Builtin> text_filters() { return rows; }

}  // namespace nibble::jinja
