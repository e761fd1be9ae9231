// Reads character by character; a value may end on a later line only if it is a list.
// After the TOML 1.0 specification (https://toml.io/en/v1.0.0).
#include "tools/config_file.h"

#include <algorithm>
#include <charconv>

#include "ggml/base/cat.h"
#include "src/text/utf8.h"

namespace nibble {
namespace {

bool is_bare(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

class ConfigReader {
  public:
    ConfigReader(std::string_view text, const std::string& file)
        : text_(without_byte_order_mark(text)), file_(file) {}

    Result<std::vector<ConfigItem>> read() {
        for (skip_empty(); !done(); skip_empty()) {
            NIBBLE_TRY(peek() == '[' ? table() : item());
            NIBBLE_TRY(end_of_line());
        }
        return std::move(items_);
    }

  private:
    bool done() const { return at_ >= text_.size(); }
    char peek() const { return done() ? '\n' : text_[at_]; }
    bool take(char c) {
        const bool is = !done() && text_[at_] == c;
        at_ += is;
        return is;
    }
    void skip_spaces() {
        while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++at_;
    }
    void skip_comment() {
        skip_spaces();
        if (peek() == '#')
            while (peek() != '\n') ++at_;
    }
    // Also over the ends of lines.
    void skip_empty() {
        for (skip_comment(); take('\n'); skip_comment()) ++line_;
    }

    Error wrong(std::string what, std::string fix, size_t line = 0) const {
        return {ErrorCode::invalid_argument, line_of(file_, line ? line : line_), std::move(what),
                std::move(fix)};
    }
    // What stands here, up to the end of the line.
    std::string rest() const {
        constexpr size_t shown = 40;
        const std::string_view r = text_.substr(at_, std::min(text_.find('\n', at_), text_.size()) - at_);
        return cat("'", r.substr(0, shown), r.size() > shown ? "...'" : "'");
    }

    Result<void> end_of_line() {
        skip_comment();
        if (peek() == '\n') return {};
        return wrong(cat(rest(), " is too much on this line"),
                     "a text with spaces is put in quotes, a list in brackets");
    }

    Result<void> table() {
        take('[');
        skip_spaces();
        if (peek() == '[') return wrong("a list of tables has no meaning here", "write [name]");
        table_ = NIBBLE_TRY(key());
        skip_spaces();
        if (peek() == '.') return wrong("is a table in a table", "tables are [models] and those of commands");
        if (!take(']')) return wrong("the name of a table is not closed", "write [name]");
        return {};
    }

    Result<void> item() {
        ConfigItem i{table_, {}, {}, false, line_};
        i.name = NIBBLE_TRY(key());
        skip_spaces();
        if (i.table.empty() && take('.')) {
            i.table = std::move(i.name);
            i.name = NIBBLE_TRY(key());
            skip_spaces();
        }
        if (!take('=')) return wrong(cat("'", i.name, "' has no value"), "write name = value");
        skip_spaces();
        i.is_list = peek() == '[';
        if (i.is_list)
            i.values = NIBBLE_TRY(list());
        else
            i.values.push_back(NIBBLE_TRY(value(i.name)));
        items_.push_back(std::move(i));
        return {};
    }

    Result<std::string> key() {
        skip_spaces();
        if (peek() == '"' || peek() == '\'') return string();
        const size_t begin = at_;
        while (is_bare(peek())) ++at_;
        if (at_ > begin) return std::string(text_.substr(begin, at_ - begin));
        return wrong(cat(rest(), " is no name"), "write name = value, or [name] for a table");
    }

    Result<std::vector<std::string>> list() {
        const size_t opened = line_;
        std::vector<std::string> values;
        take('[');
        for (skip_empty(); !take(']'); skip_empty()) {
            if (done()) return wrong("the list is not closed", "end it with ]", opened);
            if (peek() == '[') return wrong("a list in a list has no meaning here", "");
            values.push_back(NIBBLE_TRY(value("the list")));
            skip_empty();
            if (done()) return wrong("the list is not closed", "end it with ]", opened);
            if (!take(',') && peek() != ']')
                return wrong(cat("before ", rest(), " a comma is missing, or the end of the list"),
                             opened == line_ ? "" : cat("the list begins in line ", opened));
        }
        return values;
    }

    Result<std::string> value(const std::string& of) {
        if (peek() == '"' || peek() == '\'') return string();
        const size_t begin = at_;
        while (std::string_view(" \t\r\n,]#\"'").find(peek()) == std::string_view::npos) ++at_;
        if (peek() == '"' || peek() == '\'')
            return wrong("a quote within a value", "put quotes around all of it");
        if (at_ == begin) return wrong(cat("'", of, "' has no value"), "an empty text is \"\"");
        return std::string(text_.substr(begin, at_ - begin));
    }

    Result<std::string> string() {
        const char quote = text_[at_++];
        if (text_.substr(at_).starts_with(std::string(2, quote)))
            return wrong("texts of several lines are not known here", "write \\n in a text of one line");
        std::string s;
        while (!take(quote)) {
            if (peek() == '\n') return wrong("a text is not closed", cat("end it with ", quote));
            if (quote == '"' && take('\\'))
                NIBBLE_TRY(escape(s));
            else
                s += text_[at_++];
        }
        return s;
    }

    Result<void> escape(std::string& s) {
        constexpr std::string_view from = "btnfr\"\\", to = "\b\t\n\f\r\"\\";
        const char c = peek();
        if (const size_t i = from.find(c); i != from.npos) {
            s += to[i];
            ++at_;
            return {};
        }
        const size_t digits = c == 'u' ? 4 : c == 'U' ? 8 : 0;
        uint32_t code = 0;
        const std::string_view hex = digits ? text_.substr(at_ + 1, digits) : "";
        const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
        const bool is_scalar = code < 0xd800 || (code > 0xdfff && code <= 0x10ffff);
        if (digits == 0 || hex.size() != digits || error != std::errc{} || end != hex.data() + digits ||
            !is_scalar)
            return wrong(cat("'\\", c == '\n' ? "" : std::string(1, c), "' is no escape"),
                         "a backslash is \\\\, or use '...'");
        append_utf8(s, code);
        at_ += 1 + digits;
        return {};
    }

    std::string_view text_;
    std::string file_;
    size_t at_ = 0, line_ = 1;
    std::string table_;
    std::vector<ConfigItem> items_;
};

}  // namespace

std::string line_of(const std::string& file, size_t line) { return cat(file, " line ", line); }

Result<std::vector<ConfigItem>> parse_config(std::string_view text, const std::string& file) {
    return ConfigReader(text, file).read();
}

}  // namespace nibble
