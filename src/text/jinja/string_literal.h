// Escapes in string literals, as Python resolves them.
// An unknown escape stays as written.
#pragma once

#include <string>
#include <string_view>

#include "ggml/base/result.h"

namespace nibble::jinja {

// `body` is what stands between the quotes. Malformed \x, \u or \U escapes and \N{…} are errors.
Result<std::string> unescape(std::string_view body);

}  // namespace nibble::jinja
