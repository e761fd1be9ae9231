// Ranks as scores: 0 for the best merge, then falling; tokens that no merge makes come last.
// "left right" is cut at the first space behind the first byte, which may be a space itself.
#include "src/text/merge_scores.h"

#include "ggml/base/cat.h"

namespace nibble {

TokenIds token_ids(const Vocab& vocab) {
    TokenIds ids;
    ids.reserve(vocab.tokens.size());
    for (size_t i = 0; i < vocab.tokens.size(); ++i) ids.emplace(vocab.tokens[i], static_cast<Token>(i));
    return ids;
}

Result<void> score_by_merges(Vocab& v, const TokenIds& ids) {
    v.scores.assign(v.tokens.size(), -static_cast<float>(v.merges.size()) - 1);
    for (size_t rank = v.merges.size(); rank-- > 0;) {  // backwards: the best rank stays
        std::string joined = v.merges[rank];
        if (const size_t space = joined.find(' ', 1); space != std::string::npos) joined.erase(space, 1);
        const auto it = ids.find(joined);
        if (it == ids.end())
            return Error{ErrorCode::corrupt, "merges",
                         cat("merge ", rank, " makes '", joined, "', which is no token"), ""};
        v.scores[static_cast<size_t>(it->second)] = -static_cast<float>(rank);
    }
    v.merges.clear();
    return {};
}

}  // namespace nibble
