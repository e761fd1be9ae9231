// Text: bytes plus the sorted spans that are not trusted.
// A wholly trusted string costs nothing extra; a wholly untrusted one has a single span.
#include "src/text/jinja/text.h"

#include <algorithm>
#include <utility>

namespace nibble::jinja {

Text::Text(std::string bytes, bool untrusted) : bytes_(std::move(bytes)) {
    if (untrusted) mark(0, bytes_.size());
}

void Text::mark(size_t begin, size_t end) {
    if (begin == end) return;
    if (!untrusted_.empty() && untrusted_.back().end == begin) {
        untrusted_.back().end = end;
    } else {
        untrusted_.push_back({begin, end});
    }
}

bool Text::untrusted_at(size_t byte) const {
    const auto after = std::upper_bound(untrusted_.begin(), untrusted_.end(), byte,
                                        [](size_t b, const ByteSpan& s) { return b < s.begin; });
    return after != untrusted_.begin() && byte < std::prev(after)->end;
}

void Text::append(std::string_view bytes, bool untrusted) {
    const size_t at = bytes_.size();
    bytes_.append(bytes);
    if (untrusted) mark(at, bytes_.size());
}

void Text::append(const Text& other, size_t begin, size_t end) {
    const size_t at = bytes_.size();
    bytes_.append(other.bytes_, begin, end - begin);
    auto span = std::partition_point(other.untrusted_.begin(), other.untrusted_.end(),
                                     [&](const ByteSpan& s) { return s.end <= begin; });
    for (; span != other.untrusted_.end() && span->begin < end; ++span) {
        mark(at + std::max(span->begin, begin) - begin, at + std::min(span->end, end) - begin);
    }
}

Text Text::slice(size_t begin, size_t end) const {
    Text part;
    part.append(*this, begin, end);
    return part;
}

std::string Text::take() {
    untrusted_.clear();
    return std::exchange(bytes_, {});
}

}  // namespace nibble::jinja
