// FuzzRounds: how often a test that damages its input does so, and from which seed.
// NIBBLE_FUZZ_ROUNDS and NIBBLE_FUZZ_SEED run it for longer, elsewhere.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace nibble {

struct FuzzRounds {
    uint64_t first = 1, end = 0;  // as seeds, one for each round
    explicit FuzzRounds(uint64_t usual) {
        const auto number = [](const char* name, uint64_t other) -> uint64_t {
            const char* const text = std::getenv(name);
            return text ? std::strtoull(text, nullptr, 10) : other;
        };
        first = number("NIBBLE_FUZZ_SEED", 1);
        end = first + number("NIBBLE_FUZZ_ROUNDS", usual);
    }
    uint64_t n() const { return end - first; }
};

}  // namespace nibble
