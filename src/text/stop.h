// StopMatcher: ends a stream of text before the first of several stop strings.
// Holds back whatever could be the beginning of one, so that no part of it is ever printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// The result does not depend on how the text is cut into pushes: the match is the stop string that is
// complete first, and of those that end at the same byte the longest. Knuth-Morris-Pratt (1977) per string:
// time is text times strings, memory the strings plus the held text, which is shorter than the longest one.
class StopMatcher {
  public:
    explicit StopMatcher(std::vector<std::string> stops);  // empty strings are ignored

    // Takes more text and returns what is certain to be printed. After a match: nothing.
    std::string push(std::string_view text);
    std::string flush();  // the end of the stream: what was held back, unless a stop matched

    bool matched() const { return matched_; }
    bool holds() const { return !held_.empty(); }
    const std::string& match() const { return match_; }

  private:
    struct Stop {
        std::string text;
        std::vector<uint32_t> failure;  // [n]: longest proper border of the first n + 1 bytes
        uint32_t state = 0;             // bytes of `text` that the stream so far ends with
    };
    std::vector<Stop> stops_;
    std::string held_;
    std::string match_;
    bool matched_ = false;
};

}  // namespace nibble
