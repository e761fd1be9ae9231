// lower_case(): names that people write in capitals as the tables spell them.
// ASCII alone; other bytes stay as they are.
#pragma once

#include <string>
#include <string_view>

namespace nibble {

inline std::string lower_case(std::string_view name) {
    std::string lower(name);
    for (char& c : lower)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return lower;
}

}  // namespace nibble
