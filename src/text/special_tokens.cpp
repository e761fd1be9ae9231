// SpecialTokens: a bucket per first byte, longest text first.
// Vocabularies hold at most a few hundred of these.
#include "src/text/special_tokens.h"

#include <algorithm>

namespace nibble {

void SpecialTokens::add(std::string_view text, Token id, bool control) {
    if (!text.empty()) by_first_[static_cast<unsigned char>(text[0])].push_back({text, id, control});
}

void SpecialTokens::finish() {
    for (auto& bucket : by_first_)
        std::ranges::stable_sort(
            bucket, [](const Entry& a, const Entry& b) { return a.text.size() > b.text.size(); });
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, size_t from,
                                                        bool control) const {
    for (size_t i = from; i < text.size(); ++i)
        for (const Entry& e : by_first_[static_cast<unsigned char>(text[i])])
            if ((control || !e.control) && text.substr(i).starts_with(e.text))
                return Match{i, e.text.size(), e.id};
    return {};
}

}  // namespace nibble
