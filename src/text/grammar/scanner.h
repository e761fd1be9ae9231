// Scanner: reads a grammar text character by character and says where something is wrong.
// Internal to src/text/grammar.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ggml/base/cat.h"
#include "ggml/base/result.h"
#include "src/text/utf8.h"

namespace nibble {

class Scanner {
  public:
    static constexpr uint32_t at_end = 0xFFFFFFFF;

    // Precondition: text is valid UTF-8, see check().
    Scanner(std::string_view text, std::string_view what) : text_(text), what_(what) {}

    // Size and UTF-8.
    static Result<void> check(std::string_view text, std::string_view what, size_t max_size) {
        if (text.size() > max_size)
            return Error{ErrorCode::unsupported, std::string(what),
                         cat("has ", text.size(), " bytes; at most ", max_size, " are read"), ""};
        for (size_t i = 0; i < text.size();) {
            const int n = valid_utf8_at(text.substr(i));
            if (n == 0)
                return Error{ErrorCode::corrupt, std::string(what), cat("is not UTF-8 at byte ", i), ""};
            i += static_cast<size_t>(n);
        }
        return {};
    }

    bool done() const { return at_ >= text_.size(); }
    uint32_t peek() const {
        if (done()) return at_end;
        const auto lead = static_cast<unsigned char>(text_[at_]);
        if (lead < 0x80) return lead;
        const int n = utf8_length(lead);
        uint32_t c = lead & (0xFFu >> (n + 1));
        for (int i = 1; i < n; ++i)
            c = c << 6 | (static_cast<unsigned char>(text_[at_ + static_cast<size_t>(i)]) & 0x3Fu);
        return c;
    }
    uint32_t take() {
        const uint32_t c = peek();
        if (c != at_end) at_ += static_cast<size_t>(utf8_length(static_cast<unsigned char>(text_[at_])));
        return c;
    }
    bool take_if(std::string_view expected) {
        if (!text_.substr(at_).starts_with(expected)) return false;
        at_ += expected.size();
        return true;
    }
    bool starts_with(std::string_view s) const { return text_.substr(at_).starts_with(s); }
    template <class Predicate>
    std::string_view take_while(Predicate predicate) {
        const size_t from = at_;
        while (!done() && predicate(text_[at_])) ++at_;
        return text_.substr(from, at_ - from);
    }
    size_t position() const { return at_; }
    void seek(size_t position) { at_ = position; }

    // Exactly `digits` hexadecimal digits.
    std::optional<uint32_t> take_hex(int digits) {
        uint32_t value = 0;
        for (int i = 0; i < digits; ++i, ++at_) {
            const char c = done() ? ' ' : text_[at_];
            const int d = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
            if (d < 0) return std::nullopt;
            value = value << 4 | static_cast<uint32_t>(d);
        }
        return value;
    }
    // Digits of a number up to `most`; nothing when there is none or it is larger.
    std::optional<int32_t> take_number(int32_t most) {
        const std::string_view digits = take_while([](char c) { return c >= '0' && c <= '9'; });
        int64_t value = 0;
        for (const char c : digits)
            if (value <= most) value = value * 10 + (c - '0');
        if (digits.empty() || value > most) return std::nullopt;
        return static_cast<int32_t>(value);
    }

    Error error(std::string what, std::string fix = {}) const {
        size_t line = 1, column = 1;
        for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
            ++column;
            if (text_[i] == '\n') ++line, column = 1;
        }
        return {ErrorCode::invalid_argument, cat(what_, " line ", line, " column ", column), std::move(what),
                std::move(fix)};
    }

  private:
    std::string_view text_, what_;
    size_t at_ = 0;
};

}  // namespace nibble
