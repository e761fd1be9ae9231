// Regular expressions as grammars. The whole text must match; ^ and $ may stand at the ends.
// Syntax and meaning as in PCRE2 without Unicode classes (and ECMA-262 where they agree).
#pragma once

#include <functional>
#include <string_view>

#include "ggml/base/result.h"
#include "src/text/grammar/expr.h"

namespace nibble {

// The subset: literals, . (not a line feed), [classes] with ranges, ^ and \d \w \s \D \W \S (ASCII), groups
// ( ) (?: ) (?<name> ), |, * + ? {m} {m,} {m,n} and their lazy forms (the same language), escapes \n \r \t
// \f \v \0 \xHH \uHHHH \x{H...} and escaped punctuation. Refused by name: look-around, back-references, word
// borders, flags, atomic groups, possessive quantifiers, \p.
struct RegexOptions {
    // How a set of characters is written; null: as it is. (In a JSON string some characters are escapes.)
    std::function<ExprId(GrammarSource&, const CharSet&)> write;
    // Without ^ or $ anything may come before or after, as in JSON Schema.
    bool search = false;
};

// `what` names the text in errors, which tell line and column.
Result<ExprId> parse_regex(GrammarSource& source, std::string_view pattern, std::string_view what,
                           const RegexOptions& options = {});

}  // namespace nibble
