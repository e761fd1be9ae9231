// A link of the sampler chain: it edits or removes candidates, and may remember the tokens accepted so far.
// Links are listed in chain_table.h; each lives in a file of its own.
#pragma once

#include <memory>
#include <span>

#include "ggml/base/draw_row.h"
#include "src/sample/candidates.h"
#include "src/sample/rng.h"

namespace nibble {

// What a link may look at beside the candidates.
struct SampleStep {
    std::span<const Token> history;  // all accepted tokens, prompt included, newest last
    const Rng& rng;
};

class Sampler {
  public:
    virtual ~Sampler() = default;
    // Must leave at least one candidate. Called again for the same step when a constraint rejects the pick.
    virtual void apply(Candidates& candidates, const SampleStep& step) = 0;
    // A token was added: history.back().
    virtual void accept(std::span<const Token> /*history*/) {}
    virtual void reset() {}  // forgets all accepted tokens
    // Adds to `row` what a device needs to do as apply() does; false where only the processor can. `ahead`:
    // the device has drawn a token that the history lacks.
    virtual bool describe(DrawRow& /*row*/, std::span<const Token> /*history*/, bool /*ahead*/) const {
        return false;
    }
    virtual std::unique_ptr<Sampler> clone() const = 0;
};

}  // namespace nibble
