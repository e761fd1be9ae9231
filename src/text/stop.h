// StopMatcher: ends a stream of text before the first of several stop strings.
// Holds back whatever could be the beginning of one, so that no part of it is ever printed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble {

class StopMatcher {
  public:
    explicit StopMatcher(std::vector<std::string> stops);  // empty strings are ignored

    // Takes more text and returns what is certain to be printed. After a match: nothing.
    std::string push(std::string_view text);
    std::string flush();  // the end of the stream: what was held back, unless a stop matched

    bool matched() const { return matched_; }
    const std::string& match() const { return match_; }

  private:
    std::vector<std::string> stops_;
    std::string held_;
    std::string match_;
    bool matched_ = false;
};

}  // namespace nibble
