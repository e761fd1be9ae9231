// GBNF: a recursive descent parser.
// After the description in llama.cpp's grammars/README.md; a line that begins with | continues the rule.
#include <unordered_map>

#include "src/text/grammar/grammar.h"
#include "src/text/grammar/scanner.h"

namespace nibble {
namespace {

bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfParser {
  public:
    explicit GbnfParser(std::string_view text) : in_(text, "grammar") {}

    Result<Grammar> parse() {
        skip(true);
        while (!in_.done()) {
            NIBBLE_TRY(parse_rule());
            skip(true);
        }
        const auto root = rules_.find("root");
        if (root == rules_.end())
            return Error{ErrorCode::invalid_argument, "grammar", "has no rule named root",
                         "root ::= ... is where it starts"};
        return Grammar::compile(source_, root->second);
    }

  private:
    void skip(bool line_breaks) {
        while (!in_.done()) {
            in_.take_while(
                [&](char c) { return c == ' ' || c == '\t' || (line_breaks && (c == '\n' || c == '\r')); });
            if (in_.peek() != '#') return;
            in_.take_while([](char c) { return c != '\n' && c != '\r'; });
        }
    }

    RuleId rule_named(std::string_view name) {
        const auto [it, fresh] = rules_.try_emplace(std::string(name), 0);
        if (fresh) it->second = source_.add_rule(std::string(name));
        return it->second;
    }

    Result<void> parse_rule() {
        const std::string_view name = in_.take_while(is_name);
        if (name.empty()) return in_.error("expected the name of a rule");
        skip(false);
        if (!in_.take_if("::=")) return in_.error(cat("expected ::= after ", name));
        skip(true);
        const RuleId rule = rule_named(name);
        if (source_.rules()[static_cast<size_t>(rule)].body >= 0)
            return in_.error(cat("rule ", name, " is defined twice"));
        const ExprId body = NIBBLE_TRY(parse_choice(0));
        source_.define(rule, body);
        if (!in_.done() && in_.peek() != '\n' && in_.peek() != '\r')
            return in_.error(cat("unexpected ", describe(in_.peek()), " in rule ", name));
        return {};
    }

    static std::string describe(uint32_t c) {
        std::string s;
        append_utf8(s, c);
        return cat("'", s, "'");
    }

    // Between alternatives: in groups line breaks count for nothing, outside only if a | follows.
    bool take_bar(bool nested) {
        const size_t before = in_.position();
        skip(true);
        if (in_.take_if("|")) return true;
        if (!nested) in_.seek(before);
        return false;
    }

    Result<ExprId> parse_choice(int32_t depth) {
        std::vector<ExprId> ways;
        do {
            skip(true);
            ways.push_back(NIBBLE_TRY(parse_sequence(depth)));
        } while (take_bar(depth > 0));
        return source_.choice(std::move(ways));
    }

    // A name that begins the next rule ends a sequence only after a line break, which skip(false) keeps.
    Result<ExprId> parse_sequence(int32_t depth) {
        std::vector<ExprId> parts;
        while (true) {
            const uint32_t c = in_.peek();
            if (c == Scanner::at_end || c == '|' || c == ')' || c == '\n' || c == '\r') break;
            const ExprId item = NIBBLE_TRY(parse_item(depth));
            parts.push_back(NIBBLE_TRY(parse_repeats(item)));
            skip(depth > 0);
        }
        return source_.sequence(std::move(parts));
    }

    Result<ExprId> parse_item(int32_t depth) {
        const uint32_t c = in_.peek();
        if (c == '"') return parse_text();
        if (c == '[') return parse_class();
        if (in_.take_if(".")) return source_.chars(CharSet::all());
        if (in_.take_if("(")) {
            if (depth >= max_grammar_nesting)
                return in_.error(cat("more than ", max_grammar_nesting, " groups in each other"));
            const ExprId inner = NIBBLE_TRY(parse_choice(depth + 1));
            if (!in_.take_if(")")) return in_.error("expected ) at the end of the group");
            return inner;
        }
        if (c == '<' || c == '!')
            return in_.error("references to tokens, <name> or !<name>, are not supported",
                             "a grammar describes the text of an answer; write the token's text in quotes");
        const std::string_view name = in_.take_while(is_name);
        if (name.empty()) return in_.error(cat("unexpected ", describe(c)));
        return source_.reference(rule_named(name));
    }

    Result<ExprId> parse_repeats(ExprId item) {
        while (true) {
            skip(false);
            if (in_.take_if("*")) {
                item = source_.repeat(item, 0, unbounded);
            } else if (in_.take_if("+")) {
                item = source_.repeat(item, 1, unbounded);
            } else if (in_.take_if("?")) {
                item = source_.repeat(item, 0, 1);
            } else if (in_.take_if("{")) {
                item = NIBBLE_TRY(parse_counts(item));
            } else {
                return item;
            }
            if (source_.depth(item) > 3 * max_grammar_nesting) return in_.error("too many repetitions");
        }
    }

    Result<ExprId> parse_counts(ExprId item) {
        const auto number = [this] { return in_.take_number(max_repeat); };
        const std::string fix = cat("{m}, {m,} or {m,n} with m <= n, at most ", max_repeat);
        skip(false);
        int32_t min = 0;
        if (in_.peek() != ',') {
            const auto m = number();
            if (!m) return in_.error("expected a count", fix);
            min = *m;
        }
        skip(false);
        int32_t max = min;
        if (in_.take_if(",")) {
            skip(false);
            max = unbounded;
            if (in_.peek() != '}') {
                const auto m = number();
                if (!m || *m < min) return in_.error("bad upper count", fix);
                max = *m;
            }
        }
        skip(false);
        if (!in_.take_if("}")) return in_.error("expected } after the count", fix);
        return source_.repeat(item, min, max);
    }

    // One character of a text or class, escapes resolved.
    Result<uint32_t> parse_char() {
        const uint32_t c = in_.take();
        if (c != '\\') return c;
        const uint32_t e = in_.take();
        std::optional<uint32_t> hex;
        switch (e) {
            case 'n':
                return uint32_t{'\n'};
            case 'r':
                return uint32_t{'\r'};
            case 't':
                return uint32_t{'\t'};
            case '\\':
            case '"':
            case '[':
            case ']':
            case '-':
            case '^':
                return e;
            case 'x':
                hex = in_.take_hex(2);
                break;
            case 'u':
                hex = in_.take_hex(4);
                break;
            case 'U':
                hex = in_.take_hex(8);
                break;
            default:
                return in_.error("unknown escape", "\\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH");
        }
        if (!hex) return in_.error("expected hexadecimal digits");
        if (*hex > 0x10FFFF || (*hex >= 0xD800 && *hex <= 0xDFFF))
            return in_.error("is not a Unicode character");
        return *hex;
    }

    Result<ExprId> parse_text() {
        in_.take();
        std::string text;
        while (in_.peek() != '"') {
            if (in_.done() || in_.peek() == '\n') return in_.error("the text has no closing \"");
            append_utf8(text, NIBBLE_TRY(parse_char()));
        }
        in_.take();
        return source_.text(text);
    }

    Result<ExprId> parse_class() {
        in_.take();
        const bool inverted = in_.take_if("^");
        std::vector<CodeRange> ranges;
        while (in_.peek() != ']') {
            if (in_.done() || in_.peek() == '\n') return in_.error("the class has no closing ]");
            const uint32_t first = NIBBLE_TRY(parse_char());
            uint32_t last = first;
            if (in_.peek() == '-' && !in_.starts_with("-]")) {
                in_.take();
                if (in_.done()) return in_.error("the class has no closing ]");
                last = NIBBLE_TRY(parse_char());
                if (last < first) return in_.error("the range ends before it begins");
            }
            ranges.push_back({first, last});
        }
        in_.take();
        const CharSet set = CharSet::of(std::move(ranges));
        return source_.chars(inverted ? set.inverted() : set);
    }

    Scanner in_;
    GrammarSource source_;
    std::unordered_map<std::string, RuleId> rules_;
};

}  // namespace

Result<Grammar> Grammar::from_gbnf(std::string_view text) {
    NIBBLE_TRY(Scanner::check(text, "grammar", max_grammar_text));
    return GbnfParser(text).parse();
}

}  // namespace nibble
