// nests_deeper(): whether brackets of a JSON text nest deeper than walks of the parsed document may survive.
// It looks at the text alone, so that it can be asked before anything is parsed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace nibble {

inline bool nests_deeper(std::string_view text, int levels = 64) {
    int depth = 0, deepest = 0;
    for (size_t i = 0; i < text.size() && deepest <= levels; ++i) {
        switch (text[i]) {
            case '"':
                for (++i; i < text.size() && text[i] != '"'; ++i)
                    if (text[i] == '\\') ++i;
                break;
            case '[':
            case '{':
                deepest = std::max(deepest, ++depth);
                break;
            case ']':
            case '}':
                --depth;
                break;
            default:
                break;
        }
    }
    return deepest > levels;
}

}  // namespace nibble
