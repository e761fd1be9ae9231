// The pieces of JSON text as grammar expressions: strings, numbers in bounds, white space, any value.
// RFC 8259. What is described here is always valid JSON; some spellings of equal values are left out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ggml/base/result.h"
#include "src/text/grammar/expr.h"

namespace nibble {

class JsonText {
  public:
    explicit JsonText(GrammarSource& source);

    // One character inside a string, plain or (quotation mark, backslash, controls) as an escape.
    ExprId character() const { return source_.reference(character_); }
    // Characters of the set as a string spells them; for patterns.
    static ExprId written(GrammarSource& source, const CharSet& set);
    ExprId string(int32_t min, int32_t max);  // length in characters
    ExprId quoted(ExprId content);
    // A key without escapes that is none of `names`.
    ExprId other_key(const std::vector<std::string>& names);

    // White space in between: nothing, a space, or a line break with up to 16 blanks.
    ExprId space() const { return source_.reference(space_); }
    ExprId value() const { return source_.reference(value_); }  // any
    ExprId object() const { return source_.reference(object_); }
    ExprId array() const { return source_.reference(array_); }
    ExprId comma() const { return source_.reference(comma_); }
    ExprId colon() const { return source_.reference(colon_); }

    static constexpr int64_t largest = 999'999'999'999'999'999;  // 18 digits
    // Without exponent, at most 18 digits; nothing if min > max.
    ExprId integer(int64_t min, int64_t max);
    // Any number; with a bound: without exponent, at most 16 decimals. `open`: the bound itself is excluded.
    ExprId number();
    struct Bound {
        int64_t value;
        bool open;
    };
    ExprId number(std::optional<Bound> min, std::optional<Bound> max);

  private:
    ExprId one_of(char first, char last);
    ExprId any_digits(size_t n) {
        return source_.repeat(one_of('0', '9'), static_cast<int32_t>(n), static_cast<int32_t>(n));
    }
    ExprId digits_from(std::string_view low);
    ExprId digits_to(std::string_view high);
    ExprId digits_between(std::string_view low, std::string_view high);
    ExprId natural(int64_t min, int64_t max);
    ExprId magnitude(Bound min, std::optional<Bound> max);
    ExprId other_than(const std::vector<std::u32string>& names, size_t at);

    GrammarSource& source_;
    RuleId character_, space_, value_, object_, array_, comma_, colon_;
};

}  // namespace nibble
