// Python's two ways of formatting strings: "%s" % x and "{}".format(x), with width, fill and precision.
// Values keep their untrusted spans; a conversion that is not supported is an error that names it.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "ggml/base/result.h"
#include "src/text/jinja/budget.h"
#include "src/text/jinja/value.h"

namespace nibble::jinja {

using NamedValues = std::vector<std::pair<std::string, Value>>;

// `arguments`: a tuple for several values, a dict for "%(name)s", anything else is the one value.
Result<Value> percent_format(Budget& budget, const Text& pattern, const Value& arguments);
Result<Value> brace_format(Budget& budget, const Text& pattern, std::span<const Value> positional,
                           const NamedValues& named);

}  // namespace nibble::jinja
