// Ranks as scores: 0 for the best merge, then falling; tokens that no merge makes come last.
// "left right" is cut at the first space behind the first byte, which may be a space itself.
#include "src/text/merge_scores.h"

#include "ggml/base/cat.h"

namespace nibble {

Result<void> score_by_merges(Vocab& v, const TokenIndex& ids) {
    v.scores.assign(v.tokens.size(), -static_cast<float>(v.merges.size()) - 1);
    for (size_t rank = v.merges.size(); rank-- > 0;) {  // backwards: the best rank stays
        std::string joined = v.merges[rank];
        if (const size_t space = joined.find(' ', 1); space != std::string::npos) joined.erase(space, 1);
        const Token t = ids.find(joined);
        if (t < 0)
            return Error{ErrorCode::corrupt, "merges",
                         cat("merge ", rank, " makes '", joined, "', which is no token"), ""};
        v.scores[static_cast<size_t>(t)] = -static_cast<float>(rank);
    }
    v.merges.clear();
    return {};
}

}  // namespace nibble
