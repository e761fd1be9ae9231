// Values as text: Python's str() and repr(), and json.dumps as chat templates get it from `tojson`.
// Strings inside keep their untrusted spans.
#pragma once

#include <string>

#include "ggml/base/result.h"
#include "src/text/jinja/budget.h"
#include "src/text/jinja/text.h"
#include "src/text/jinja/value.h"

namespace nibble::jinja {

std::string format_real(double d);  // as Python prints a float: "1.0", "1e+16", "inf"

// Appends str(v); an undefined value prints nothing.
Result<void> print(Budget& budget, Text& out, const Value& v);
Result<void> print_repr(Budget& budget, Text& out, const Value& v);
Result<Text> to_text(Budget& budget, const Value& v);
// A string value shared as it is, anything else converted.
Result<TextRef> as_text(Budget& budget, const Value& v);

// Defaults are those of json.dumps(x, ensure_ascii=False).
struct JsonStyle {
    bool pretty = false;  // with a line per element, indented by `indent`
    std::string indent;
    std::string item_separator = ", ", key_separator = ": ";
    bool ascii_only = false, sort_keys = false;
};
Result<void> print_json(Budget& budget, Text& out, const Value& v, const JsonStyle& style);

}  // namespace nibble::jinja
