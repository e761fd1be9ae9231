// Sorting and merging of ranges; everything else follows from the complement.
// Adjacent ranges are joined, so that equal sets are equal lists.
#include "src/text/grammar/charset.h"

#include <algorithm>

namespace nibble {
namespace {

constexpr uint32_t last_char = 0x10FFFF, surrogate_first = 0xD800, surrogate_last = 0xDFFF;

void add_clipped(std::vector<CodeRange>& out, CodeRange r) {
    r.last = std::min(r.last, last_char);
    if (r.first > r.last) return;
    if (r.first < surrogate_first) out.push_back({r.first, std::min(r.last, surrogate_first - 1)});
    if (r.last > surrogate_last) out.push_back({std::max(r.first, surrogate_last + 1), r.last});
}

}  // namespace

CharSet CharSet::of(std::vector<CodeRange> given) {
    std::vector<CodeRange> ranges;
    for (const CodeRange& r : given) add_clipped(ranges, r);
    std::ranges::sort(ranges, {}, &CodeRange::first);
    CharSet set;
    for (const CodeRange& r : ranges) {
        if (!set.ranges_.empty() && r.first <= set.ranges_.back().last + 1) {
            set.ranges_.back().last = std::max(set.ranges_.back().last, r.last);
        } else {
            set.ranges_.push_back(r);
        }
    }
    return set;
}

CharSet::CharSet(std::initializer_list<CodeRange> ranges) : CharSet(of(ranges)) {}

CharSet CharSet::all() { return {{0, last_char}}; }

CharSet CharSet::united(const CharSet& other) const {
    std::vector<CodeRange> both = ranges_;
    both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
    return of(std::move(both));
}

CharSet CharSet::inverted() const {
    std::vector<CodeRange> gaps;
    uint32_t from = 0;
    for (const CodeRange& r : ranges_) {
        if (r.first > from) gaps.push_back({from, r.first - 1});
        from = r.last + 1;
    }
    gaps.push_back({from, last_char});
    return of(std::move(gaps));
}

CharSet CharSet::without(const CharSet& other) const { return inverted().united(other).inverted(); }

bool CharSet::contains(uint32_t c) const {
    const auto after = std::ranges::upper_bound(ranges_, c, {}, &CodeRange::first);
    return after != ranges_.begin() && c <= std::prev(after)->last;
}

}  // namespace nibble
