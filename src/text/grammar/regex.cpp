// A recursive descent parser for the subset; what it does not know it refuses by name.
// Anchors are taken off the ends of the outermost alternatives before anything else is read.
#include "src/text/grammar/regex.h"

#include "src/text/grammar/grammar.h"
#include "src/text/grammar/scanner.h"

namespace nibble {
namespace {

const CharSet& digits() {
    static const CharSet set{{'0', '9'}};
    return set;
}
const CharSet& words() {
    static const CharSet set{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    return set;
}
const CharSet& spaces() {
    static const CharSet set{{'\t', '\r'}, {' ', ' '}};
    return set;
}

// What a dialect of schemas' patterns counts as white space: \S is what none of them does.
const CharSet& wide_spaces() {
    static const CharSet set{{'\t', '\r'},     {0x1C, ' '},      {0x85, 0x85},     {0xA0, 0xA0},
                             {0x1680, 0x1680}, {0x180E, 0x180E}, {0x2000, 0x200A}, {0x2028, 0x2029},
                             {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    return set;
}
// What the dot leaves out there.
const CharSet& line_ends() {
    static const CharSet set{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    return set;
}

// \d and its like; nothing for other letters.
std::optional<CharSet> named_class(uint32_t letter) {
    switch (letter) {
        case 'd':
            return digits();
        case 'D':
            return digits().inverted();
        case 'w':
            return words();
        case 'W':
            return words().inverted();
        case 's':
            return spaces();
        case 'S':
            return spaces().inverted();
        default:
            return std::nullopt;
    }
}

class RegexParser {
  public:
    RegexParser(GrammarSource& source, std::string_view pattern, std::string_view what,
                const RegexOptions& options)
        : in_(pattern, what), source_(source), options_(options) {}

    Result<ExprId> parse() {
        const ExprId all = NIBBLE_TRY(parse_choice(0));
        if (!in_.done()) return in_.error("unexpected )");
        return all;
    }

  private:
    ExprId write(const CharSet& set) {
        return options_.write ? options_.write(source_, set) : source_.chars(set);
    }
    ExprId anything() { return source_.any_number(write(CharSet::all())); }

    Result<ExprId> parse_choice(int32_t depth) {
        if (depth > max_grammar_nesting)
            return in_.error(cat("more than ", max_grammar_nesting, " groups in each other"));
        std::vector<ExprId> ways;
        do {
            ways.push_back(NIBBLE_TRY(parse_sequence(depth)));
        } while (in_.take_if("|"));
        return source_.choice(std::move(ways));
    }

    Result<ExprId> parse_sequence(int32_t depth) {
        std::vector<ExprId> parts;
        if (!(depth == 0 && in_.take_if("^")) && depth == 0 && options_.search) parts.push_back(anything());
        bool ended = false;
        while (!in_.done() && in_.peek() != '|' && in_.peek() != ')') {
            if (depth == 0 && in_.take_if("$")) {
                ended = true;
                break;
            }
            const ExprId atom = NIBBLE_TRY(parse_atom(depth));
            parts.push_back(NIBBLE_TRY(parse_quantifier(atom)));
        }
        if (ended && !in_.done() && in_.peek() != '|') return in_.error("$ is supported only at the end");
        if (!ended && depth == 0 && options_.search) parts.push_back(anything());
        return source_.sequence(std::move(parts));
    }

    Result<ExprId> parse_atom(int32_t depth) {
        const uint32_t c = in_.take();
        switch (c) {
            case '(':
                return parse_group(depth);
            case '[':
                return parse_class();
            case '.':
                return write((options_.search ? line_ends() : CharSet{{'\n', '\n'}}).inverted());
            case '\\': {
                if (const auto set = take_named_class(false)) {
                    return write(*set);
                }
                const uint32_t escaped = NIBBLE_TRY(parse_escape(false));
                return write({{escaped, escaped}});
            }
            case '*':
            case '+':
            case '?':
                return in_.error("a quantifier needs something before it");
            case '^':
                return in_.error("^ is supported only at the beginning");
            case '$':
                return in_.error("$ is supported only at the end");
            default:
                return write({{c, c}});
        }
    }

    Result<ExprId> parse_group(int32_t depth) {
        if (in_.take_if("?")) {
            if (in_.starts_with("=") || in_.starts_with("!") || in_.starts_with("<=") ||
                in_.starts_with("<!"))
                return in_.error("look-around is not supported", "it does not describe a set of texts alone");
            if (in_.starts_with(">")) return in_.error("atomic groups are not supported");
            if (!in_.take_if(":")) {
                in_.take_if("P");
                if (!in_.take_if("<")) return in_.error("flags and other (? groups are not supported");
                in_.take_while([](char c) { return c != '>'; });
                if (!in_.take_if(">")) return in_.error("the group's name has no closing >");
            }
        }
        const ExprId inner = NIBBLE_TRY(parse_choice(depth + 1));
        if (!in_.take_if(")")) return in_.error("expected ) at the end of the group");
        return inner;
    }

    Result<ExprId> parse_quantifier(ExprId atom) {
        int32_t min = 0, max = unbounded;
        if (in_.take_if("*")) {
        } else if (in_.take_if("+")) {
            min = 1;
        } else if (in_.take_if("?")) {
            max = 1;
        } else if (!NIBBLE_TRY(parse_counts(min, max))) {
            return atom;
        }
        if (in_.peek() == '+') return in_.error("possessive quantifiers are not supported");
        in_.take_if("?");  // lazy: another way to the same texts
        if (in_.peek() == '*' || in_.peek() == '+' || in_.peek() == '?')
            return in_.error("a quantifier follows a quantifier", "group with (?: )");
        return source_.repeat(atom, min, max);
    }

    // False, and nothing taken, if no {m}, {m,} or {m,n} comes next: then { is a character.
    Result<bool> parse_counts(int32_t& min, int32_t& max) {
        const size_t before = in_.position();
        if (!in_.take_if("{")) return false;
        const auto is_digit = [](uint32_t c) { return c >= '0' && c <= '9'; };
        bool counts = is_digit(in_.peek());
        std::optional<int32_t> low, high;
        if (counts) {
            low = high = in_.take_number(max_repeat);
            if (in_.take_if(",")) {
                high = unbounded;
                if (is_digit(in_.peek())) high = in_.take_number(max_repeat);
            }
            counts = in_.take_if("}");
        }
        if (!counts) {
            in_.seek(before);
            return false;
        }
        if (!low || !high || (*high != unbounded && *high < *low))
            return in_.error("bad count", cat("{m}, {m,} or {m,n} with m <= n, at most ", max_repeat));
        min = *low;
        max = *high;
        return true;
    }

    Result<uint32_t> parse_escape(bool in_class) {
        const uint32_t e = in_.take();
        std::optional<uint32_t> code;
        switch (e) {
            case 'n':
                return uint32_t{'\n'};
            case 'r':
                return uint32_t{'\r'};
            case 't':
                return uint32_t{'\t'};
            case 'f':
                return uint32_t{'\f'};
            case 'v':
                return uint32_t{'\v'};
            case '0':
                return uint32_t{0};
            case 'b':
                if (in_class) return uint32_t{'\b'};
                [[fallthrough]];
            case 'B':
                return in_.error("word borders (\\b, \\B) are not supported");
            case 'x':
                code = in_.take_if("{") ? braced() : in_.take_hex(2);
                break;
            case 'u':
                code = in_.take_if("{") ? braced() : in_.take_hex(4);
                break;
            case 'p':
            case 'P':
                return in_.error("Unicode properties (\\p) are not supported", "give the ranges in [ ]");
            case Scanner::at_end:
                return in_.error("\\ at the end");
            default:
                if (e >= '1' && e <= '9') return in_.error("back-references are not supported");
                if ((e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z'))
                    return in_.error(cat("the escape \\", static_cast<char>(e), " is not supported"));
                return e;
        }
        if (!code) return in_.error("expected hexadecimal digits");
        if (*code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF))
            return in_.error("is not a Unicode character");
        return *code;
    }

    std::optional<uint32_t> braced() {
        for (int digits = 6; digits > 0; --digits) {
            const size_t before = in_.position();
            const auto value = in_.take_hex(digits);
            if (value && in_.take_if("}")) return value;
            in_.seek(before);
        }
        return std::nullopt;
    }

    // Patterns of schemas are of several dialects: what is left over is so of all of them.
    std::optional<CharSet> take_named_class(bool inverted) {
        const auto letter = in_.peek();
        auto set = named_class(letter);
        if (!set) return set;
        in_.take();
        if (options_.search && letter == 'S') return wide_spaces().inverted();
        if (options_.search && letter == 's' && inverted) return wide_spaces();
        return set;
    }

    Result<ExprId> parse_class() {
        const bool inverted = in_.take_if("^");
        CharSet named;
        std::vector<CodeRange> ranges;
        for (bool first_one = true; first_one || in_.peek() != ']'; first_one = false) {
            if (in_.done()) return in_.error("the class has no closing ]");
            if (in_.starts_with("[:")) return in_.error("[: classes are not supported");
            uint32_t first = in_.take();
            if (first == '\\') {
                if (const auto set = take_named_class(inverted)) {
                    named = named.united(*set);
                    if (in_.peek() == '-' && !in_.starts_with("-]"))
                        return in_.error("a class cannot begin a range");
                    continue;
                }
                first = NIBBLE_TRY(parse_escape(true));
            }
            uint32_t last = first;
            if (in_.peek() == '-' && !in_.starts_with("-]")) {
                in_.take();
                last = in_.take();
                if (last == '\\') {
                    if (named_class(in_.peek())) return in_.error("a class cannot end a range");
                    last = NIBBLE_TRY(parse_escape(true));
                }
                if (last == Scanner::at_end) return in_.error("the class has no closing ]");
                if (last < first) return in_.error("the range ends before it begins");
            }
            ranges.push_back({first, last});
        }
        in_.take();
        const CharSet set = CharSet::of(std::move(ranges)).united(named);
        return write(inverted ? set.inverted() : set);
    }

    Scanner in_;
    GrammarSource& source_;
    const RegexOptions& options_;
};

}  // namespace

Result<ExprId> parse_regex(GrammarSource& source, std::string_view pattern, std::string_view what,
                           const RegexOptions& options) {
    NIBBLE_TRY(Scanner::check(pattern, what, max_grammar_text));
    return RegexParser(source, pattern, what, options).parse();
}

Result<Grammar> Grammar::from_regex(std::string_view pattern) {
    GrammarSource source;
    const RuleId root = source.add_rule("regular expression");
    const ExprId body = NIBBLE_TRY(parse_regex(source, pattern, "regular expression"));
    source.define(root, body);
    return compile(source, root);
}

}  // namespace nibble
