// Dates as strftime_now prints them: always in English, whatever locale the program runs in.
// Conversions: those of the C standard that dates use, and %-d and the like without padding.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "ggml/base/result.h"

namespace nibble::jinja {

// `t` holds local time; all fields up to tm_yday must be set. An unknown conversion is an error.
Result<std::string> format_time(std::string_view format, const std::tm& t);

}  // namespace nibble::jinja
