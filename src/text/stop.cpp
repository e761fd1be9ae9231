// StopMatcher: the held text is always shorter than the longest stop string.
// Of two matches the one that begins first wins.
#include "src/text/stop.h"

#include <algorithm>

namespace nibble {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
    std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

std::string StopMatcher::push(std::string_view text) {
    if (matched_) return {};
    if (stops_.empty()) return std::string(text);
    held_ += text;
    size_t first = std::string::npos;
    for (const std::string& s : stops_) {
        const size_t at = held_.find(s);
        if (at < first) first = at, match_ = s, matched_ = true;
    }
    size_t keep = held_.size();
    if (matched_) {
        keep = first;
    } else {
        for (const std::string& s : stops_)
            for (size_t n = std::min(s.size() - 1, held_.size()); n > 0; --n)
                if (std::string_view(held_).ends_with(std::string_view(s).substr(0, n))) {
                    keep = std::min(keep, held_.size() - n);
                    break;
                }
    }
    std::string out = held_.substr(0, keep);
    held_.erase(0, keep);
    return out;
}

std::string StopMatcher::flush() {
    std::string rest = matched_ ? std::string() : std::move(held_);
    held_.clear();
    return rest;
}

}  // namespace nibble
