// Philox4x32 with ten rounds, and its mapping to (seed, stream, step, lane).
// Constants are the published ones; tests hold it against the published known answers.
#include "src/sample/rng.h"

namespace nibble {

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
        const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
        c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
             static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
        k = {k[0] + 0x9E3779B9u, k[1] + 0xBB67AE85u};
    }
    return c;
}

uint64_t Rng::bits(RngLane lane) const {
    const auto word = philox4x32_10({static_cast<uint32_t>(lane), step_, static_cast<uint32_t>(stream_),
                                     static_cast<uint32_t>(stream_ >> 32)},
                                    {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    return word[0] | uint64_t{word[1]} << 32;
}

double Rng::uniform(RngLane lane) const { return static_cast<double>(bits(lane) >> 11) * 0x1p-53; }

}  // namespace nibble
