// Names and strings from files, made safe to print inside an error message.
// Hostile files carry names of any length with terminal escapes in them.
#pragma once

#include <string>
#include <string_view>

namespace nibble {

// 'text' in single quotes: control bytes become \xNN, at most `limit` bytes of the text are shown.
std::string quote(std::string_view text, size_t limit = 96);

}  // namespace nibble
