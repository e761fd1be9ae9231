// Names and strings from files, made safe to print inside an error message.
// Hostile files carry names of any length with terminal escapes in them.
#pragma once

#include <string>
#include <string_view>

namespace nibble {

// The text with control bytes as \xNN, cut with "…" after `limit` bytes.
std::string printable(std::string_view text, size_t limit = 96);

// The same in single quotes.
std::string quote(std::string_view text, size_t limit = 96);

}  // namespace nibble
