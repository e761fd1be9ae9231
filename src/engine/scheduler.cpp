// schedule(): the rows of each decoding sequence, then prompts in order of arrival.
// A prompt takes all that is left: finishing one early beats advancing all slowly.
#include "src/engine/scheduler.h"

#include <algorithm>

namespace nibble {

std::vector<int32_t> schedule(std::span<const Work> work, Budget budget) {
    std::vector<int32_t> rows(work.size(), 0);
    for (const bool decoding : {true, false})
        for (size_t i = 0; i < work.size(); ++i) {
            if (work[i].decoding != decoding || work[i].pending == 0) continue;
            if (budget.sequences == 0 || budget.tokens == 0) return rows;
            rows[i] = std::min(work[i].pending, budget.tokens);
            budget.tokens -= rows[i];
            --budget.sequences;
        }
    return rows;
}

}  // namespace nibble
