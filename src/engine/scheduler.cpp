// schedule(): a row of each decoding sequence, what else those have, then prompts in order of arrival.
// A prompt takes all that is left: finishing one early beats advancing all slowly.
#include "src/engine/scheduler.h"

#include <algorithm>

namespace nibble {

std::vector<int32_t> schedule(std::span<const Work> work, Budget budget) {
    std::vector<int32_t> rows(work.size(), 0);
    const auto add = [&](size_t i, int32_t most) {
        if (rows[i] == 0 && budget.sequences == 0) return;
        const int32_t more = std::min({work[i].pending - rows[i], most, budget.tokens});
        if (rows[i] == 0 && more > 0) --budget.sequences;
        rows[i] += more;
        budget.tokens -= more;
    };
    for (size_t i = 0; i < work.size(); ++i)
        if (work[i].decoding) add(i, 1);
    for (const bool decoding : {true, false})
        for (size_t i = 0; i < work.size(); ++i)
            if (work[i].decoding == decoding) add(i, work[i].pending);
    return rows;
}

}  // namespace nibble
