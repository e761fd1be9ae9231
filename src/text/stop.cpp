// StopMatcher: each stop string keeps the length of its beginning that the text ends with.
// The longest of these is held back.
#include "src/text/stop.h"

#include <algorithm>
#include <utility>

namespace nibble {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
    for (std::string& text : stops) {
        if (text.empty()) continue;
        std::vector<uint32_t> failure(text.size(), 0);
        uint32_t border = 0;
        for (size_t i = 1; i < text.size(); ++i) {
            while (border > 0 && text[i] != text[border]) border = failure[border - 1];
            if (text[i] == text[border]) ++border;
            failure[i] = border;
        }
        stops_.push_back({std::move(text), std::move(failure), 0});
    }
    // The longest first: it wins when several end together.
    std::ranges::stable_sort(stops_,
                             [](const Stop& a, const Stop& b) { return a.text.size() > b.text.size(); });
}

std::string StopMatcher::push(std::string_view text) {
    if (matched_) return {};
    if (stops_.empty()) return std::string(text);
    uint32_t begun = 0;  // bytes at the end of the text that may begin a stop string
    for (const char c : text) {
        held_ += c;
        begun = 0;
        for (Stop& s : stops_) {
            while (s.state > 0 && c != s.text[s.state]) s.state = s.failure[s.state - 1];
            if (c == s.text[s.state]) ++s.state;
            if (s.state == s.text.size()) {
                matched_ = true;
                match_ = s.text;
                held_.resize(held_.size() - s.text.size());
                return std::exchange(held_, {});
            }
            begun = std::max(begun, s.state);
        }
    }
    if (text.empty()) return {};
    std::string out = held_.substr(0, held_.size() - begun);
    held_.erase(0, out.size());
    return out;
}

std::string StopMatcher::flush() {
    for (Stop& s : stops_) s.state = 0;
    return std::exchange(held_, {});
}

}  // namespace nibble
