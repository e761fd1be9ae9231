// The random numbers of sampling: a function of (seed, stream, step, lane), not a state that is consumed.
// The same seed reproduces a text on every platform, in any batch, and on a GPU.
#pragma once

#include <array>
#include <cstdint>

namespace nibble {

// Philox4x32-10: J. K. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section 3.3.
// Integer arithmetic only. `counter` and `key` in the order of the paper's reference implementation.
std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// What a random number of a step is for. Each use has a lane of its own, so that switching one sampler on
// does not shift the numbers that the others see. Callers may use lanes from `first_free` on.
enum class RngLane : uint32_t { pick = 0, retry = 1, xtc = 2, first_free = 16 };

// key = seed; counter = (lane, step, stream low, stream high); the first two output words, low word first,
// make the 64 random bits.
class Rng {
  public:
    // `stream` tells sequences with the same seed apart (sample 0, 1, 2, ... of one prompt).
    explicit Rng(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

    uint64_t bits(RngLane lane) const;
    double uniform(RngLane lane) const;  // in [0, 1), 53 bits

    uint64_t seed() const { return seed_; }
    uint32_t step() const { return step_; }
    void seek(uint32_t step) { step_ = step; }  // e.g. after tokens were taken back
    void next_step() { ++step_; }

  private:
    uint64_t seed_, stream_;
    uint32_t step_ = 0;  // index of the generated token
};

}  // namespace nibble
