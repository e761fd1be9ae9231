// JSON's own grammar, and decimal numbers in exact bounds digit by digit.
// Shared pieces are rules, so that using them often costs one state each.
#include "src/text/grammar/json_text.h"

#include <algorithm>
#include <map>

#include "ggml/base/cat.h"
#include "src/text/grammar/scanner.h"

namespace nibble {
namespace {

const CharSet& must_be_escaped() {
    static const CharSet set{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    return set;
}

const CharSet& hex_digits() {
    static const CharSet set{{'0', '9'}, {'a', 'f'}, {'A', 'F'}};
    return set;
}

// \" \\ \/ \b \f \n \r \t and \uXXXX, where surrogates come in pairs.
ExprId escape(GrammarSource& g) {
    const auto hex = [&](int32_t n) { return g.repeat(g.chars(hex_digits()), n, n); };
    const ExprId d = g.chars({{'d', 'd'}, {'D', 'D'}});
    const CharSet no_d = hex_digits().without({{'d', 'd'}, {'D', 'D'}});
    const ExprId plain =
        g.choice({g.sequence({g.chars(no_d), hex(3)}), g.sequence({d, g.chars({{'0', '7'}}), hex(2)})});
    const ExprId pair = g.sequence({d, g.chars({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), hex(2), g.text("\\u"),
                                    d, g.chars({{'c', 'f'}, {'C', 'F'}}), hex(2)});
    std::vector<CodeRange> letters;
    for (const char c : std::string_view("\"\\/bfnrt"))
        letters.push_back({static_cast<uint32_t>(c), static_cast<uint32_t>(c)});
    return g.sequence({g.text("\\"), g.choice({g.chars(CharSet::of(letters)),
                                               g.sequence({g.text("u"), g.choice({plain, pair})})})});
}

}  // namespace

JsonText::JsonText(GrammarSource& g)
    : source_(g),
      character_(g.add_rule("json character")),
      space_(g.add_rule("json space")),
      value_(g.add_rule("json value")),
      object_(g.add_rule("json object")),
      array_(g.add_rule("json array")),
      comma_(g.add_rule("json comma")),
      colon_(g.add_rule("json colon")) {
    g.define(character_, g.choice({g.chars(must_be_escaped().inverted()), escape(g)}));
    const ExprId blanks = g.repeat(g.chars({{' ', ' '}, {'\t', '\t'}}), 0, 16);
    g.define(space_, g.optional(g.choice({g.text(" "), g.sequence({g.text("\n"), blanks})})));
    g.define(comma_, g.sequence({g.text(","), space()}));
    g.define(colon_, g.sequence({g.text(":"), g.optional(g.text(" "))}));
    const auto list = [&](std::string_view open, ExprId item, std::string_view close) {
        const ExprId more = g.any_number(g.sequence({comma(), item}));
        return g.sequence(
            {g.text(open), space(), g.optional(g.sequence({item, more, space()})), g.text(close)});
    };
    g.define(array_, list("[", value(), "]"));
    g.define(object_, list("{", g.sequence({string(0, unbounded), colon(), value()}), "}"));
    g.define(value_, g.choice({object(), array(), string(0, unbounded), number(), g.text("true"),
                               g.text("false"), g.text("null")}));
}

ExprId JsonText::quoted(ExprId content) {
    return source_.sequence({source_.text("\""), content, source_.text("\"")});
}

ExprId JsonText::string(int32_t min, int32_t max) { return quoted(source_.repeat(character(), min, max)); }

ExprId JsonText::written(GrammarSource& g, const CharSet& set) {
    std::vector<ExprId> ways{g.chars(set.without(must_be_escaped()))};
    constexpr std::string_view short_forms = "\"\"\\\\\nn\rr\tt\bb\ff";  // pairs: character, letter
    const CharSet escaped = set.common(must_be_escaped());
    for (const CodeRange& r : escaped.ranges())
        for (uint32_t c = r.first; c <= r.last; ++c) {
            std::string text;
            for (size_t i = 0; i < short_forms.size(); i += 2)
                if (static_cast<unsigned char>(short_forms[i]) == c) text = cat("\\", short_forms[i + 1]);
            constexpr std::string_view hex = "0123456789abcdef";
            if (text.empty()) text = cat("\\u00", hex[c / 16], hex[c % 16]);
            ways.push_back(g.text(text));
        }
    return g.choice(std::move(ways));
}

ExprId JsonText::other_than(const std::vector<std::u32string>& names, size_t at) {
    std::map<char32_t, std::vector<std::u32string>> by_next;
    bool ends = false;
    for (const auto& n : names) {
        if (n.size() == at) {
            ends = true;
        } else {
            by_next[n[at]].push_back(n);
        }
    }
    CharSet other = must_be_escaped().inverted();
    const ExprId any = source_.any_number(source_.chars(other));
    std::vector<ExprId> ways;
    if (!ends) ways.push_back(source_.text(""));
    for (const auto& [c, rest] : by_next) {
        const CharSet one{{c, c}};
        other = other.without(one);
        ways.push_back(source_.sequence({source_.chars(one), other_than(rest, at + 1)}));
    }
    ways.push_back(source_.sequence({source_.chars(other), any}));
    return source_.choice(std::move(ways));
}

ExprId JsonText::other_key(const std::vector<std::string>& names) {
    std::vector<std::u32string> decoded;
    for (const std::string& name : names) {
        std::u32string text;
        Scanner in(name, "");
        while (!in.done()) text += static_cast<char32_t>(in.take());
        // A name that needs an escape cannot be met by a key without one.
        if (std::ranges::none_of(text, [](char32_t c) { return must_be_escaped().contains(c); }))
            decoded.push_back(std::move(text));
    }
    return quoted(other_than(decoded, 0));
}

ExprId JsonText::one_of(char first, char last) {
    return source_.chars({{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}});
}

// Digit strings as long as `low`, not less than it.
ExprId JsonText::digits_from(std::string_view low) {
    if (low.find_first_not_of('0') == low.npos) return any_digits(low.size());
    const ExprId same = source_.sequence({one_of(low[0], low[0]), digits_from(low.substr(1))});
    if (low[0] == '9') return same;
    return source_.choice(
        {same, source_.sequence({one_of(static_cast<char>(low[0] + 1), '9'), any_digits(low.size() - 1)})});
}

ExprId JsonText::digits_to(std::string_view high) {
    if (high.find_first_not_of('9') == high.npos) return any_digits(high.size());
    const ExprId same = source_.sequence({one_of(high[0], high[0]), digits_to(high.substr(1))});
    if (high[0] == '0') return same;
    return source_.choice(
        {same, source_.sequence({one_of('0', static_cast<char>(high[0] - 1)), any_digits(high.size() - 1)})});
}

ExprId JsonText::digits_between(std::string_view low, std::string_view high) {
    if (low.empty()) return source_.text("");
    if (low[0] == high[0])
        return source_.sequence({one_of(low[0], low[0]), digits_between(low.substr(1), high.substr(1))});
    std::vector<ExprId> ways{source_.sequence({one_of(low[0], low[0]), digits_from(low.substr(1))}),
                             source_.sequence({one_of(high[0], high[0]), digits_to(high.substr(1))})};
    if (low[0] + 1 < high[0])
        ways.push_back(
            source_.sequence({one_of(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
                              any_digits(low.size() - 1)}));
    return source_.choice(std::move(ways));
}

// 0 <= min; decimal without leading zeros.
ExprId JsonText::natural(int64_t min, int64_t max) {
    std::vector<ExprId> ways;
    int shortest = 0, longest = 0;  // lengths of which every number is right: a state for each digit
    int length = 1;
    for (int64_t first = 0, last = 9; first <= largest; first = last + 1, last = last * 10 + 9, ++length) {
        const int64_t low = std::max(min, first), high = std::min(max, last);
        if (low == first && high == last && length > 1) {
            if (!shortest) shortest = length;
            longest = length;
        } else if (low <= high) {
            ways.push_back(digits_between(cat(low), cat(high)));
        }
        if (last >= max || last >= largest) break;
    }
    if (shortest)
        ways.push_back(source_.sequence(
            {one_of('1', '9'), source_.repeat(one_of('0', '9'), shortest - 1, longest - 1)}));
    return source_.choice(std::move(ways));
}

ExprId JsonText::integer(int64_t min, int64_t max) {
    min = std::max(min, -largest);
    max = std::min(max, largest);
    std::vector<ExprId> ways;
    if (max >= 0) ways.push_back(natural(std::max<int64_t>(min, 0), max));
    if (min < 0)
        ways.push_back(source_.sequence({source_.text("-"), natural(std::max<int64_t>(-max, 1), -min)}));
    return source_.choice(std::move(ways));
}

ExprId JsonText::number() {
    GrammarSource& g = source_;
    const ExprId digit = one_of('0', '9');
    const ExprId whole = g.choice({g.text("0"), g.sequence({one_of('1', '9'), g.repeat(digit, 0, 17)})});
    const ExprId fraction = g.sequence({g.text("."), g.repeat(digit, 1, 16)});
    const ExprId exponent =
        g.sequence({g.chars({{'e', 'e'}, {'E', 'E'}}), g.optional(g.chars({{'+', '+'}, {'-', '-'}})),
                    g.repeat(digit, 1, 2)});
    return g.sequence({g.optional(g.text("-")), whole, g.optional(fraction), g.optional(exponent)});
}

// Non-negative decimals from min to max, both not negative: between two whole numbers any fraction, at the
// ends only what stays inside.
ExprId JsonText::magnitude(Bound min, std::optional<Bound> max) {
    GrammarSource& g = source_;
    const ExprId digit = one_of('0', '9');
    const ExprId any = g.optional(g.sequence({g.text("."), g.repeat(digit, 1, 16)}));
    const ExprId zero = g.optional(g.sequence({g.text("."), g.repeat(one_of('0', '0'), 1, 16)}));
    const ExprId not_zero = g.sequence(
        {g.text("."), g.repeat(one_of('0', '0'), 0, 15), one_of('1', '9'), g.repeat(digit, 0, 15)});
    std::vector<ExprId> ways;
    const int64_t last = max ? max->value - 1 : largest;  // whole parts with any fraction
    if (max && max->value == min.value) {
        if (!max->open && !min.open) ways.push_back(g.sequence({natural(min.value, min.value), zero}));
        return g.choice(std::move(ways));
    }
    if (max && max->value < min.value) return g.choice({});
    ways.push_back(g.sequence({natural(min.value, min.value), min.open ? not_zero : any}));
    if (min.value + 1 <= last) ways.push_back(g.sequence({natural(min.value + 1, last), any}));
    if (max && !max->open) ways.push_back(g.sequence({natural(max->value, max->value), zero}));
    return g.choice(std::move(ways));
}

ExprId JsonText::number(std::optional<Bound> min, std::optional<Bound> max) {
    if (!min && !max) return number();
    std::vector<ExprId> ways;
    if (!max || max->value >= 0)
        ways.push_back(magnitude(min && min->value >= 0 ? *min : Bound{0, false}, max));
    if (!min || min->value < 0) {
        const Bound low = max && max->value <= 0 ? Bound{-max->value, max->open} : Bound{0, true};
        const auto high = min ? std::optional(Bound{-min->value, min->open}) : std::nullopt;
        ways.push_back(source_.sequence({source_.text("-"), magnitude(low, high)}));
    }
    return source_.choice(std::move(ways));
}

}  // namespace nibble
