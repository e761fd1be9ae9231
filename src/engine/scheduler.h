// Scheduler: which rows of which sequences make the next batch. No tensors, no clock, no memory.
// Decode first, so that running answers never wait for a long prompt; prompts share what is left.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nibble {

// A sequence as the scheduler sees it, in order of arrival.
struct Work {
    // Tokens known but not yet computed; while decoding 1 and what is guessed, or all of a text whose state
    // is computed again.
    int32_t pending = 0;
    bool decoding = false;
};

struct Budget {
    int32_t tokens = 0;  // rows of a batch
    int32_t sequences = 0;
};

// Rows given to work[i], 0 when it waits; never more than its pending.
std::vector<int32_t> schedule(std::span<const Work> work, Budget budget);

}  // namespace nibble
