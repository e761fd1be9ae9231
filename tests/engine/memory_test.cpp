// Where the memory has no room for all weights packed, some are used from the file: with the same logits.
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "tests/golden/single_sequence.h"
#include "tests/small_machine.h"

using namespace nibble;

namespace {

struct Loaded {
    std::vector<float> logits;
    DeviceFootprint footprint;
    size_t left;
};

Loaded load(const std::filesystem::path& path, size_t free_bytes) {
    auto s = SingleSequence::load(path, Type::f16, std::make_shared<SmallMachine>(free_bytes), 256);
    REQUIRE_MESSAGE(s, (s ? "" : s.error().message()));
    const std::vector<int32_t> tokens{5, 17, 300, 42, 7};
    const auto logits = s->feed(tokens);
    REQUIRE(logits);
    return {{logits->begin(), logits->end()}, s->runner().memory().devices[0], s->runner().left_bytes()};
}

}  // namespace

TEST_CASE("weights that do not fit packed are used from the file, with the same logits") {
    const auto path = bundled_model();
    const Loaded all = load(path, size_t{1} << 40);
    CHECK(all.left == 0);
    CHECK(all.footprint.packed > 0);
    const size_t others = all.footprint.cache + all.footprint.arena + all.footprint.inputs;
    CHECK(load(path, others + all.footprint.packed).left == 0);
    size_t before = 0;
    for (const size_t eighths : {7, 4, 2}) {
        const size_t free = others + all.footprint.packed * eighths / 8;
        const Loaded some = load(path, free);
        CHECK(some.left > before);
        before = some.left;
        CHECK(some.footprint.packed > 0);
        CHECK(some.footprint.packed + others <= free);
        REQUIRE(some.logits.size() == all.logits.size());
        CHECK(std::memcmp(some.logits.data(), all.logits.data(), 4 * all.logits.size()) == 0);
    }
}
