// The lexer: literal text up to the next tag, then tokens up to the tag's end.
// Line ends are made "\n" first and one at the very end is dropped, as Jinja does.
#include "src/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "ggml/base/cat.h"
#include "src/text/jinja/string_literal.h"
#include "src/text/jinja/unicode.h"

namespace nibble::jinja {
namespace {

struct Operator {
    std::string_view text;
    Tok type;
};
// Longer ones first.
constexpr std::array operators = {
    Operator{"//", Tok::floor_div}, Operator{"**", Tok::pow},     Operator{"==", Tok::eq},
    Operator{"!=", Tok::ne},        Operator{"<=", Tok::le},      Operator{">=", Tok::ge},
    Operator{"+", Tok::add},        Operator{"-", Tok::sub},      Operator{"*", Tok::mul},
    Operator{"/", Tok::div},        Operator{"%", Tok::mod},      Operator{"~", Tok::tilde},
    Operator{"<", Tok::lt},         Operator{">", Tok::gt},       Operator{"=", Tok::assign},
    Operator{".", Tok::dot},        Operator{",", Tok::comma},    Operator{":", Tok::colon},
    Operator{";", Tok::semicolon},  Operator{"|", Tok::pipe},     Operator{"(", Tok::lparen},
    Operator{")", Tok::rparen},     Operator{"[", Tok::lbracket}, Operator{"]", Tok::rbracket},
    Operator{"{", Tok::lbrace},     Operator{"}", Tok::rbrace}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}

std::string normalize_line_ends(std::string_view source) {
    std::string s;
    s.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            s += '\n';
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        } else {
            s += source[i];
        }
    }
    if (s.ends_with('\n')) s.pop_back();
    return s;
}

class Lexer {
  public:
    Lexer(std::string_view source, const std::string& name)
        : source_(normalize_line_ends(source)), s_(source_), name_(name) {}

    Result<std::vector<Token>> run() {
        while (at_ < s_.size()) {
            const size_t tag = find_tag();
            if (tag == s_.npos) {
                literal(at_, s_.size());
                advance(s_.size());
                break;
            }
            const char kind = s_[tag + 1];
            if (kind == '%' && is_word_tag(tag, "raw")) {
                NIBBLE_TRY(raw(tag));
                continue;
            }
            literal_before(tag, kind != '{');
            advance(skip_mark(tag + 2));
            if (kind == '#') {
                NIBBLE_TRY(comment());
            } else {
                NIBBLE_TRY(tag_tokens(kind == '%'));
            }
        }
        push(Tok::end);
        return std::move(tokens_);
    }

  private:
    // What ended the last tag decides whether lstrip_blocks sees the start of a line here.
    void advance(size_t to) {
        line_ += static_cast<uint32_t>(std::count(s_.begin() + static_cast<std::ptrdiff_t>(at_),
                                                  s_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
        at_ = to;
    }
    void push(Tok type, std::string text = "") { tokens_.push_back({type, line_, std::move(text)}); }
    Error error(std::string what) const {
        return {ErrorCode::invalid_argument, cat(name_, ":", line_), std::move(what), ""};
    }
    char peek(size_t offset = 0) const { return at_ + offset < s_.size() ? s_[at_ + offset] : '\0'; }
    bool starts(size_t at, std::string_view text) const {
        return s_.substr(std::min(at, s_.size())).starts_with(text);
    }
    size_t skip_mark(size_t at) const {
        return at < s_.size() && (s_[at] == '-' || s_[at] == '+') ? at + 1 : at;
    }
    size_t skip_space(size_t at) const {
        while (at < s_.size()) {
            const CodePoint c = decode(s_, at);
            if (!is_space(c.value)) break;
            at += c.length;
        }
        return at;
    }

    size_t find_tag() const {
        for (size_t i = s_.find('{', at_); i != s_.npos && i + 1 < s_.size(); i = s_.find('{', i + 1)) {
            if (s_[i + 1] == '%' || s_[i + 1] == '{' || s_[i + 1] == '#') return i;
        }
        return s_.npos;
    }

    // Is the tag at `tag` ("{%") exactly {% word %}? Then end is set past its closing "%}" (before trimming).
    bool is_word_tag(size_t tag, std::string_view word, size_t* end = nullptr) const {
        size_t i = skip_space(skip_mark(tag + 2));
        if (!starts(i, word)) return false;
        i = skip_space(i + word.size());
        if (starts(i, "-%}") || (word == "endraw" && starts(i, "+%}"))) ++i;
        if (!starts(i, "%}")) return false;
        if (end) *end = i + 2;
        return true;
    }

    void literal(size_t begin, size_t end) {
        if (begin < end) push(Tok::data, std::string(s_.substr(begin, end - begin)));
    }

    // The text from here to a tag, with the white space before the tag removed where its mark or
    // lstrip_blocks (for tags that are not {{ }}) asks for it.
    void literal_before(size_t tag, bool may_lstrip) {
        const char mark = tag + 2 < s_.size() ? s_[tag + 2] : '\0';
        size_t end = tag;
        if (mark == '-') {
            while (end > at_) {
                const size_t before = previous(s_.substr(at_), end - at_) + at_;
                if (!is_space(decode(s_, before).value)) break;
                end = before;
            }
        } else if (mark != '+' && may_lstrip) {
            const size_t newline = s_.substr(at_, tag - at_).rfind('\n');
            const size_t line_start = newline == s_.npos ? at_ : at_ + newline + 1;
            const bool starts_line = newline != s_.npos || line_starting_;
            if (starts_line && skip_space(line_start) >= tag) end = line_start;
        }
        literal(at_, end);
        advance(tag);
    }

    // Past a closing mark: '-' takes all white space, else a comment or block takes one line end.
    void after_close(bool strip, bool trim) {
        const size_t begin = at_;
        if (strip) {
            advance(skip_space(at_));
        } else if (trim && peek() == '\n') {
            advance(at_ + 1);
        }
        line_starting_ = at_ > begin && s_[at_ - 1] == '\n';
    }

    Result<void> comment() {
        const size_t close = s_.find("#}", at_);
        if (close == s_.npos) return error("a comment is not closed: '#}' is missing");
        const char mark = close > at_ ? s_[close - 1] : '\0';
        advance(close + 2);
        after_close(mark == '-', mark != '+');
        return {};
    }

    Result<void> raw(size_t tag) {
        literal_before(tag, true);
        size_t body = 0;
        is_word_tag(tag, "raw", &body);
        const bool strip = s_[body - 3] == '-';
        advance(body);
        if (strip) advance(skip_space(at_));
        line_starting_ = s_[at_ - 1] == '\n';
        for (size_t i = s_.find("{%", at_); i != s_.npos; i = s_.find("{%", i + 1)) {
            size_t end = 0;
            if (!is_word_tag(i, "endraw", &end)) continue;
            literal_before(i, true);
            advance(end);
            after_close(s_[end - 3] == '-', s_[end - 3] != '+');
            return {};
        }
        return error("a raw block is not closed: {% endraw %} is missing");
    }

    // Ends the tag here? Sets `mark` to '-', '+' or 0.
    bool at_close(bool block, char& mark) const {
        const std::string_view close = block ? "%}" : "}}";
        mark = peek() == '-' || (block && peek() == '+') ? peek() : '\0';
        return starts(at_ + (mark ? 1 : 0), close);
    }

    Result<void> tag_tokens(bool block) {
        push(block ? Tok::block_begin : Tok::variable_begin);
        std::vector<char> open;
        while (true) {
            advance(skip_space(at_));
            if (at_ >= s_.size())
                return error(cat("the template ends inside a tag: '", block ? "%}" : "}}", "' is missing"));
            char mark = 0;
            if (open.empty() && at_close(block, mark)) {
                push(block ? Tok::block_end : Tok::variable_end);
                advance(at_ + (mark ? 3 : 2));
                after_close(mark == '-', block && mark != '+');
                return {};
            }
            NIBBLE_TRY(token(open));
        }
    }

    Result<void> token(std::vector<char>& open) {
        const char c = peek();
        if (is_digit(c)) return number();
        if (is_name_start(c)) {
            size_t end = at_;
            while (end < s_.size() && (is_name_start(s_[end]) || is_digit(s_[end]))) ++end;
            push(Tok::name, std::string(s_.substr(at_, end - at_)));
            advance(end);
            return {};
        }
        if (c == '"' || c == '\'') return string();
        for (const Operator& op : operators) {
            if (!starts(at_, op.text)) continue;
            NIBBLE_TRY(balance(op.type, c, open));
            push(op.type);
            advance(at_ + op.text.size());
            return {};
        }
        return error(cat("unexpected character '", s_.substr(at_, decode(s_, at_).length), "'"));
    }

    Result<void> balance(Tok type, char c, std::vector<char>& open) const {
        if (type == Tok::lparen) open.push_back(')');
        if (type == Tok::lbracket) open.push_back(']');
        if (type == Tok::lbrace) open.push_back('}');
        if (type != Tok::rparen && type != Tok::rbracket && type != Tok::rbrace) return {};
        if (open.empty()) return error(cat("unexpected '", std::string(1, c), "'"));
        if (open.back() != c)
            return error(
                cat("unexpected '", std::string(1, c), "', expected '", std::string(1, open.back()), "'"));
        open.pop_back();
        return {};
    }

    Result<void> string() {
        const char quote = peek();
        size_t end = at_ + 1;
        while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
        if (end >= s_.size()) return error("a string is not closed");
        auto text = unescape(s_.substr(at_ + 1, end - at_ - 1));
        if (!text) return error(text.error().what);
        push(Tok::string, std::move(*text));
        advance(end + 1);
        return {};
    }

    // Digits of the base, single underscores between them.
    size_t digits(size_t at, int base) const {
        const auto is_one = [&](size_t i) {
            if (i >= s_.size()) return false;
            const char c = s_[i];
            const int value = is_digit(c)                          ? c - '0'
                              : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                                   : 99;
            return value < base;
        };
        while (is_one(at) || (at < s_.size() && s_[at] == '_' && is_one(at + 1))) ++at;
        return at;
    }

    Result<void> number() {
        const char prefix = static_cast<char>(peek(1) | 32);
        const int base = peek() != '0' ? 10 : prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
        const size_t begin = base == 10 ? at_ : at_ + 2;
        size_t end = digits(begin, base);
        bool real = false;
        // "x.0.1" subscripts twice: no fraction directly after a dot.
        const bool after_dot = at_ > 0 && s_[at_ - 1] == '.';
        if (base == 10 && !after_dot) {
            if (end + 1 < s_.size() && s_[end] == '.' && is_digit(s_[end + 1])) {
                real = true;
                end = digits(end + 1, 10);
            }
            if (end < s_.size() && (s_[end] | 32) == 'e') {
                const size_t sign = end + 1 < s_.size() && (s_[end + 1] == '+' || s_[end + 1] == '-') ? 1 : 0;
                const size_t exponent = digits(end + 1 + sign, 10);
                if (exponent > end + 1 + sign) {
                    real = true;
                    end = exponent;
                }
            }
        }
        std::string plain(s_.substr(begin, end - begin));
        std::erase(plain, '_');
        Token t{real ? Tok::real : Tok::integer, line_, ""};
        const char* last = plain.data() + plain.size();
        const auto parsed = real ? std::from_chars(plain.data(), last, t.real)
                                 : std::from_chars(plain.data(), last, t.integer, base);
        if (parsed.ec != std::errc() || parsed.ptr != last) {
            return error(cat("'", s_.substr(at_, end - at_), "' is not a number that fits in 64 bits"));
        }
        tokens_.push_back(std::move(t));
        advance(end);
        return {};
    }

    const std::string source_;
    const std::string_view s_;
    const std::string& name_;
    size_t at_ = 0;
    uint32_t line_ = 1;
    bool line_starting_ = true;
    std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source, const std::string& name) {
    return Lexer(source, name).run();
}

std::string_view spelling(Tok t) {
    switch (t) {
        case Tok::data:
            return "text";
        case Tok::variable_begin:
            return "'{{'";
        case Tok::variable_end:
            return "'}}'";
        case Tok::block_begin:
            return "'{%'";
        case Tok::block_end:
            return "'%}'";
        case Tok::name:
            return "a name";
        case Tok::string:
            return "a string";
        case Tok::integer:
            return "an integer";
        case Tok::real:
            return "a number";
        case Tok::end:
            return "the end of the template";
        default:
            break;
    }
    for (const Operator& op : operators) {
        if (op.type == t) return op.text;
    }
    return "a token";
}

}  // namespace nibble::jinja
