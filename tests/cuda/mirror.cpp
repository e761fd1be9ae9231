// Finds the card that the tests run on.
// The emulated one is always there; without a real one its tests have nothing to do.
#include "tests/cuda/mirror.h"

#include <doctest/doctest.h>

#include "ggml/ops/reference_backend.h"
#include "tests/nmse.h"
#include "tests/ops/harness.h"

namespace nibble {

std::unique_ptr<CudaBackend> test_card(const CudaOptions& options) {
    if (CudaBackend::devices() == 0) {
        MESSAGE("no GPU: nothing was tested");
        return nullptr;
    }
    auto card = CudaBackend::create(options);
    REQUIRE_MESSAGE(card, card.error().message());
    return std::move(*card);
}

std::unique_ptr<MirrorBackend> mirrored_card(const CudaOptions& options) {
    auto card = test_card(options);
    return card ? std::make_unique<MirrorBackend>(std::move(card)) : nullptr;
}

double error_of(const OpCase& c, Backend& backend, uint32_t seed) {
    ReferenceBackend reference;
    CaseRun expected(c, reference, seed), actual(c, backend, seed);
    REQUIRE(expected.run() == "");
    REQUIRE(actual.run() == "");
    CHECK_MESSAGE(actual.intact(), "a sentinel was overwritten");
    return CaseRun::error_between(expected, actual);
}

}  // namespace nibble
