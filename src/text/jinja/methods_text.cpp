// The methods of Python's str that templates call.
// Results are cut from the receiver, so that untrusted spans move along.
#include <algorithm>

#include "ggml/base/cat.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/print.h"
#include "src/text/jinja/search.h"
#include "src/text/jinja/unicode.h"

namespace nibble::jinja {
namespace {

const Text& self(const Call& c) { return *c.self.text(); }
Search::From side(bool from_right) { return from_right ? Search::From::right : Search::From::left; }

Result<Value> method_strip(Call& c) { return strip(c, true, true); }
Result<Value> method_lstrip(Call& c) { return strip(c, true, false); }
Result<Value> method_rstrip(Call& c) { return strip(c, false, true); }
Result<Value> method_upper(Call& c) { return map_case(c.budget, self(c), to_upper); }
Result<Value> method_lower(Call& c) { return map_case(c.budget, self(c), to_lower); }
Result<Value> method_capitalize(Call& c) { return capitalize(c.budget, self(c)); }
Result<Value> method_swapcase(Call& c) {
    return map_case(c.budget, self(c),
                    [](uint32_t p) { return to_lower(p) != p ? to_lower(p) : to_upper(p); });
}

// A word starts after anything that is not a letter.
Result<Value> method_title(Call& c) {
    bool start = true;
    return map_characters(c.budget, self(c), [&start](uint32_t p, std::string& out) {
        encode(start ? to_upper(p) : to_lower(p), out);
        start = !is_letter(p);
    });
}

Result<TextRef> needle(Call& c, size_t i = 0) {
    if (c.arg(i) && c.arg(i)->text()) return c.text(i, "");
    if (c.arg(i) && c.arg(i)->is_undefined()) return failure(describe(*c.arg(i)->undefined()));
    return failure(cat("a string is needed, not ", c.arg(i) ? type_name(*c.arg(i)) : "nothing"));
}

using Ranges = std::vector<std::pair<size_t, size_t>>;

// At white space, which is dropped at the ends; at most `limit` cuts, counted from the chosen side.
Ranges split_space(std::string_view s, size_t limit, bool from_right) {
    Ranges words;
    size_t at = 0;
    while (true) {
        while (at < s.size() && is_space(decode(s, at).value)) at += decode(s, at).length;
        if (at == s.size()) break;
        const size_t begin = at;
        while (at < s.size() && !is_space(decode(s, at).value)) at += decode(s, at).length;
        words.emplace_back(begin, at);
    }
    if (words.size() <= limit + 1 || limit == SIZE_MAX) return words;
    if (from_right) {
        // The first words stay one piece, with the white space before them.
        const size_t last = words[words.size() - limit - 1].second;
        words.erase(words.begin(), words.end() - static_cast<std::ptrdiff_t>(limit));
        words.insert(words.begin(), {0, last});
    } else {
        words[limit].second = s.size();
        words.resize(limit + 1);
    }
    return words;
}

Result<Ranges> split_at(Call& c, std::string_view separator, size_t limit, bool from_right) {
    Ranges parts;
    size_t begin = 0, end = self(c).size();
    Search search = NIBBLE_TRY(Search::start(c.budget, self(c).view(), separator, side(from_right)));
    while (limit-- > 0) {
        const size_t found = search.next();
        if (found == std::string_view::npos) break;
        const size_t after = found + separator.size();
        parts.emplace_back(from_right ? after : begin, from_right ? end : found);
        (from_right ? end : begin) = from_right ? found : after;
    }
    parts.emplace_back(begin, end);
    if (from_right) std::reverse(parts.begin(), parts.end());
    return parts;
}

Result<Value> pieces(Call& c, const Ranges& ranges) {
    std::vector<Value> items;
    items.reserve(ranges.size());
    for (const auto& [begin, end] : ranges)
        items.push_back(NIBBLE_TRY(c.budget.text(self(c).slice(begin, end))));
    return c.budget.list(std::move(items));
}

Result<Value> split(Call& c, bool from_right) {
    const int64_t most = NIBBLE_TRY(c.integer(1, -1));
    const size_t limit = most < 0 ? SIZE_MAX : static_cast<size_t>(most);
    if (!c.budget.spend_bytes(self(c).size())) return c.budget.exhausted();
    if (!c.arg(0) || c.arg(0)->is_none()) {
        if (!c.budget.spend(self(c).size() / 4))
            return c.budget.exhausted();  // every word, whatever the limit
        return pieces(c, split_space(self(c).view(), limit, from_right));
    }
    const TextRef separator = NIBBLE_TRY(needle(c));
    if (separator->empty()) return failure("split needs a separator that is not empty");
    return pieces(c, NIBBLE_TRY(split_at(c, separator->view(), limit, from_right)));
}
Result<Value> method_split(Call& c) { return split(c, false); }
Result<Value> method_rsplit(Call& c) { return split(c, true); }

Result<Value> method_splitlines(Call& c) {
    Ranges lines = split_lines(self(c));
    if (!c.budget.spend_bytes(self(c).size())) return c.budget.exhausted();
    if (c.flag(0, false)) {  // keep the line ends
        for (size_t i = 0; i < lines.size(); ++i) {
            lines[i].second = i + 1 < lines.size() ? lines[i + 1].first : self(c).size();
        }
    }
    return pieces(c, lines);
}

Result<Value> partition(Call& c, bool from_right) {
    const TextRef separator = NIBBLE_TRY(needle(c));
    if (separator->empty()) return failure("partition needs a separator that is not empty");
    const std::string_view s = self(c).view();
    Search search = NIBBLE_TRY(Search::start(c.budget, s, separator->view(), side(from_right)));
    const size_t found = search.next();
    const size_t whole = from_right ? 0 : s.size();
    const size_t a = found == s.npos ? whole : found;
    const size_t b = found == s.npos ? whole : found + separator->size();
    std::vector<Value> items;
    for (const auto& [begin, end] : Ranges{{0, a}, {a, b}, {b, s.size()}}) {
        items.push_back(NIBBLE_TRY(c.budget.text(self(c).slice(begin, end))));
    }
    return c.budget.list(std::move(items), List::Flavor::tuple);
}
Result<Value> method_partition(Call& c) { return partition(c, false); }
Result<Value> method_rpartition(Call& c) { return partition(c, true); }

// The byte range [start, end) that optional arguments `first` and `first + 1` select, in code points;
// false when Python would find nothing there, not even the empty string.
Result<bool> window(Call& c, size_t first, size_t& begin, size_t& end) {
    const std::string_view s = self(c).view();
    begin = 0;
    end = s.size();
    const bool has_start = c.arg(first) && !c.arg(first)->is_none();
    const bool has_end = c.arg(first + 1) && !c.arg(first + 1)->is_none();
    if (!has_start && !has_end) return true;
    const auto size = static_cast<int64_t>(count_code_points(s));
    const auto absolute = [size](int64_t i) { return i < 0 ? std::max<int64_t>(i + size, 0) : i; };
    const int64_t from = has_start ? absolute(NIBBLE_TRY(c.integer(first, 0))) : 0;
    const int64_t to = has_end ? std::min(absolute(NIBBLE_TRY(c.integer(first + 1, 0))), size) : size;
    if (from > to) return false;
    begin = byte_offset(s, static_cast<size_t>(from));
    end = byte_offset(s, static_cast<size_t>(to));
    return true;
}

Result<Value> affix(Call& c, bool at_end) {
    size_t begin = 0, end = 0;
    const bool possible = NIBBLE_TRY(window(c, 1, begin, end));
    const std::string_view s = self(c).view().substr(begin, end - begin);
    const List* choices = c.arg(0)->list();
    if (choices && choices->flavor == List::Flavor::tuple) {
        for (const Value& choice : choices->items) {
            const Text* t = choice.text();
            if (!t) return failure("a tuple of strings is needed");
            if (!c.budget.spend_scan(std::min(t->size(), s.size()))) return c.budget.exhausted();
            if (possible && (at_end ? s.ends_with(t->view()) : s.starts_with(t->view()))) return Value(true);
        }
        return Value(false);
    }
    const TextRef text = NIBBLE_TRY(needle(c));
    return Value(possible && (at_end ? s.ends_with(text->view()) : s.starts_with(text->view())));
}
Result<Value> method_startswith(Call& c) { return affix(c, false); }
Result<Value> method_endswith(Call& c) { return affix(c, true); }

Result<Value> find(Call& c, bool from_right, bool must) {
    const TextRef text = NIBBLE_TRY(needle(c));
    size_t begin = 0, end = 0;
    const bool possible = NIBBLE_TRY(window(c, 1, begin, end));
    const std::string_view s = self(c).view().substr(begin, end - begin);
    size_t found = from_right ? s.size() : 0;  // where Python finds the empty string
    if (!text->empty()) {
        Search search = NIBBLE_TRY(Search::start(c.budget, s, text->view(), side(from_right)));
        found = search.next();
    }
    if (possible && found != s.npos)
        return Value(static_cast<int64_t>(count_code_points(self(c).view().substr(0, begin + found))));
    return must ? Result<Value>(failure("the string to find is not there")) : Value(int64_t{-1});
}
Result<Value> method_find(Call& c) { return find(c, false, false); }
Result<Value> method_rfind(Call& c) { return find(c, true, false); }
Result<Value> method_index(Call& c) { return find(c, false, true); }
Result<Value> method_rindex(Call& c) { return find(c, true, true); }

Result<Value> method_count(Call& c) {
    const TextRef text = NIBBLE_TRY(needle(c));
    size_t begin = 0, end = 0;
    if (!NIBBLE_TRY(window(c, 1, begin, end))) return Value(int64_t{0});
    const std::string_view s = self(c).view().substr(begin, end - begin);
    if (text->empty()) return Value(static_cast<int64_t>(count_code_points(s)) + 1);
    Search search = NIBBLE_TRY(Search::start(c.budget, s, text->view()));
    int64_t n = 0;
    while (search.next() != s.npos) ++n;
    return Value(n);
}

Result<Value> method_replace(Call& c) {
    const TextRef from = NIBBLE_TRY(needle(c, 0)), to = NIBBLE_TRY(needle(c, 1));
    return replace(c.budget, self(c), *from, *to, NIBBLE_TRY(c.integer(2, -1)));
}

Result<Value> method_join(Call& c) {
    return join(c.budget, self(c), NIBBLE_TRY(iterate(c.budget, *c.arg(0))), true);
}

Result<Value> method_format(Call& c) {
    return brace_format(c.budget, self(c), c.raw.positional, c.raw.named);
}

Result<Value> method_removeprefix(Call& c) {
    const TextRef prefix = NIBBLE_TRY(needle(c));
    if (!self(c).view().starts_with(prefix->view())) return c.self;
    return c.budget.text(self(c).slice(prefix->size(), self(c).size()));
}
Result<Value> method_removesuffix(Call& c) {
    const TextRef suffix = NIBBLE_TRY(needle(c));
    if (!self(c).view().ends_with(suffix->view())) return c.self;
    return c.budget.text(self(c).slice(0, self(c).size() - suffix->size()));
}

Result<Value> justify(Call& c, int64_t left_of) {
    const TextRef fill = NIBBLE_TRY(c.text(1, " "));
    if (count_code_points(fill->view()) != 1)
        return failure("the fill of a justified string is one character");
    return center(c.budget, self(c), NIBBLE_TRY(c.integer(0, 0)), left_of, fill->view());
}
Result<Value> method_ljust(Call& c) { return justify(c, 0); }
Result<Value> method_rjust(Call& c) { return justify(c, INT64_MAX); }
Result<Value> method_center(Call& c) { return justify(c, -1); }
Result<Value> method_zfill(Call& c) {
    const bool sign = self(c).view().starts_with('-') || self(c).view().starts_with('+');
    const Value digits = NIBBLE_TRY(c.budget.text(self(c).slice(sign, self(c).size())));
    const int64_t width = std::max<int64_t>(NIBBLE_TRY(c.integer(0, 0)), 1) - sign;
    const Value padded = NIBBLE_TRY(center(c.budget, *digits.text(), width, INT64_MAX, "0"));
    Text out = self(c).slice(0, sign);
    out.append(*padded.text());
    return c.budget.text(std::move(out));
}

// Whether the string is not empty and every code point of it passes.
template <bool (*passes)(uint32_t)>
Result<Value> all_of(Call& c) {
    const std::string_view s = self(c).view();
    for (size_t at = 0; at < s.size();) {
        const CodePoint p = decode(s, at);
        if (!passes(p.value)) return Value(false);
        at += p.length;
    }
    return Value(!s.empty());
}
bool is_digit(uint32_t p) { return p >= '0' && p <= '9'; }
bool is_letter_or_digit(uint32_t p) { return is_letter(p) || is_digit(p); }

Result<Value> has_case(Call& c, std::string_view test) {
    Arguments none;
    return invoke(c.runtime, *find_test(test), c.self, std::move(none));
}
Result<Value> method_islower(Call& c) { return has_case(c, "lower"); }
Result<Value> method_isupper(Call& c) { return has_case(c, "upper"); }

constexpr Builtin rows[] = {
    {"strip", method_strip, {"chars"}},
    {"lstrip", method_lstrip, {"chars"}},
    {"rstrip", method_rstrip, {"chars"}},
    {"split", method_split, {"sep", "maxsplit"}},
    {"rsplit", method_rsplit, {"sep", "maxsplit"}},
    {"splitlines", method_splitlines, {"keepends"}},
    {"partition", method_partition, {"sep"}, 1},
    {"rpartition", method_rpartition, {"sep"}, 1},
    {"startswith", method_startswith, {"prefix", "start", "end"}, 1},
    {"endswith", method_endswith, {"suffix", "start", "end"}, 1},
    {"replace", method_replace, {"old", "new", "count"}, 2},
    {"upper", method_upper},
    {"lower", method_lower},
    {"casefold", method_lower},
    {"title", method_title},
    {"capitalize", method_capitalize},
    {"swapcase", method_swapcase},
    {"find", method_find, {"sub", "start", "end"}, 1},
    {"rfind", method_rfind, {"sub", "start", "end"}, 1},
    {"index", method_index, {"sub", "start", "end"}, 1},
    {"rindex", method_rindex, {"sub", "start", "end"}, 1},
    {"count", method_count, {"sub", "start", "end"}, 1},
    {"join", method_join, {"iterable"}, 1},
    {"format", method_format, {}, 0, true},
    {"removeprefix", method_removeprefix, {"prefix"}, 1},
    {"removesuffix", method_removesuffix, {"suffix"}, 1},
    {"ljust", method_ljust, {"width", "fillchar"}, 1},
    {"rjust", method_rjust, {"width", "fillchar"}, 1},
    {"center", method_center, {"width", "fillchar"}, 1},
    {"zfill", method_zfill, {"width"}, 1},
    {"isdigit", all_of<is_digit>},
    {"isdecimal", all_of<is_digit>},
    {"isnumeric", all_of<is_digit>},
    {"isalpha", all_of<is_letter>},
    {"isalnum", all_of<is_letter_or_digit>},
    {"isspace", all_of<is_space>},
    {"islower", method_islower},
    {"isupper", method_isupper},
};

}  // namespace

std::span<const Builtin> text_methods() { return rows; }

}  // namespace nibble::jinja
