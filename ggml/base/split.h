// Text cut at every occurrence of a character: one part more than there are of them, empty ones included.
// Quotes and brackets mean nothing here.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

inline std::vector<std::string> split(std::string_view text, char by) {
    std::vector<std::string> parts;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(by, at), text.size());
        parts.emplace_back(text.substr(at, end - at));
        at = end + 1;
    }
    return parts;
}

}  // namespace nibble
