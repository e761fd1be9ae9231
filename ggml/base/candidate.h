// Candidate: a token of the vocabulary and its logit, as samplers and devices list them, and their order.
// The one order of candidates everywhere, also in kernels.
#pragma once

#include <cstdint>

namespace nibble {

struct Candidate {
    int32_t id = 0;
    float logit = 0;
};

// By descending logit, equal logits by ascending id.
constexpr bool precedes(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

}  // namespace nibble
