// Knuth-Morris-Pratt in both directions: no byte of the string is looked at more than twice.
// Source: Knuth, Morris, Pratt, "Fast Pattern Matching in Strings", 1977.
#include "src/text/jinja/search.h"

#include <algorithm>

namespace nibble::jinja {

Result<Search> Search::start(Budget& budget, std::string_view s, std::string_view needle, From from) {
    const bool fits = needle.size() <= s.size();
    const uint64_t table = fits ? needle.size() * sizeof(uint32_t) : 0;
    if (!budget.spend_scan(s.size() + needle.size()) || !budget.spend_bytes(table)) return budget.exhausted();
    return Search(s, fits ? needle : std::string_view(), from);
}

Search::Search(std::string_view s, std::string_view needle, From from)
    : s_(s), needle_(needle), from_(from), border_(needle.size()) {
    uint32_t border = 0;
    for (size_t i = 1; i < needle.size(); ++i) {
        while (border > 0 && at(needle, i) != at(needle, border)) border = border_[border - 1];
        if (at(needle, i) == at(needle, border)) ++border;
        border_[i] = border;
    }
}

size_t Search::next() {
    if (needle_.empty()) return s_.npos;
    while (seen_ < s_.size()) {
        // Most of a string matches nothing: the library's search for one character is much faster.
        if (matched_ == 0 && from_ == From::left) seen_ = std::min(s_.find(needle_[0], seen_), s_.size());
        if (seen_ == s_.size()) break;
        const char c = at(s_, seen_++);
        while (matched_ > 0 && at(needle_, matched_) != c) matched_ = border_[matched_ - 1];
        if (at(needle_, matched_) == c) ++matched_;
        if (matched_ < needle_.size()) continue;
        matched_ = 0;
        return from_ == From::left ? seen_ - needle_.size() : s_.size() - seen_;
    }
    return s_.npos;
}

}  // namespace nibble::jinja
