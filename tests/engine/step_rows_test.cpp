// How many rows a step has when nobody says: what keeps a GPU busy, if it has all layers and the memory.
#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/ops/reference_backend.h"
#include "src/engine/model_runner.h"

using namespace nibble;

namespace {

struct Card : ReferenceBackend {
    size_t free_bytes = size_t{8} << 30;
    DeviceInfo device() const override { return {"card", "", true, size_t{8} << 30, free_bytes, 2048}; }
};

int32_t step_rows(const Card& card, RunnerConfig config) {
    ReferenceBackend cpu;
    Card gpu = card;
    Backend* const backends[] = {&cpu, &gpu};
    auto file = TensorFile::open(cat(NIBBLE_SOURCE_DIR, "/tests/golden/models/qwen2"));
    REQUIRE(file);
    auto runner = ModelRunner::load(std::move(*file), config, backends);
    REQUIRE_MESSAGE(runner, runner.error().message());
    return runner->config().batch_tokens;
}

}  // namespace

TEST_CASE("steps are as long as keeps a GPU busy that has all layers and the memory") {
    RunnerConfig config;
    config.ctx = 4096;
    Card card;
    CHECK(step_rows(card, config) == 2048);
    config.ctx = 1000;
    CHECK(step_rows(card, config) == 1000);
    config.max_sequences = 3;
    CHECK(step_rows(card, config) == 2048);
    config.batch_tokens = 300;
    CHECK(step_rows(card, config) == 300);
    config.batch_tokens = 0;
    config.gpu_layers = 1;
    CHECK(step_rows(card, config) == 512);
    config.gpu_layers = -1;
    // Enough for all layers, not for the activations of that many rows.
    for (size_t mib = 400; mib < 500; ++mib) {
        card.free_bytes = mib << 20;
        if (step_rows(card, config) == 2048) {
            CHECK(mib > 400);
            return;
        }
    }
    CHECK(false);
}
