// Perplexity of the held-out text against the float64 reference, and what BF16 storage and INT8 make of it.
// 16 windows of 512 tokens, each scored from its second token on.
#include <cmath>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "ggml/cpu/cpu_backend.h"
#include "src/engine/engine.h"
#include "src/sample/logprobs.h"
#include "tests/golden/single_sequence.h"

using namespace nibble;

namespace {

const std::filesystem::path root = NIBBLE_SOURCE_DIR;

double perplexity(const std::filesystem::path& path, Type kv_type) {
    auto cpu = CpuBackend::create();
    REQUIRE(cpu);
    Backend* const list[] = {cpu->get()};
    EngineConfig config;
    config.runner.max_outputs = 512;
    config.runner.k_type = config.runner.v_type = kv_type;
    auto engine = Engine::load(path, config, list);
    REQUIRE_MESSAGE(engine, (engine ? "" : engine.error().message()));
    const auto tokens = engine->tokenizer().encode(*read_text_file(root / "tests/data/alice.txt"));
    const auto n_vocab = static_cast<size_t>(engine->spec().n_vocab);
    std::vector<int32_t> pages(static_cast<size_t>(engine->runner().n_pages()));
    std::iota(pages.begin(), pages.end(), 0);
    double nll = 0;
    for (size_t w = 0; w < 16; ++w) {
        Batch b;
        b.tokens.assign(tokens.begin() + static_cast<int64_t>(w) * 512,
                        tokens.begin() + static_cast<int64_t>(w + 1) * 512);
        b.positions.resize(512);
        std::iota(b.positions.begin(), b.positions.end(), 0);
        b.sequences = {{0, 512}};
        b.out_rows = b.positions;
        b.slots = {b.positions};
        b.pages = {{pages}};
        const auto logits = engine->runner().run(b);
        REQUIRE(logits);
        for (size_t i = 0; i + 1 < 512; ++i) {
            const auto row = logits->subspan(i * n_vocab, n_vocab);
            nll += *log_sum_exp(row) - static_cast<double>(row[static_cast<size_t>(b.tokens[i + 1])]);
        }
    }
    return std::exp(nll / (16 * 511));
}

}  // namespace

TEST_CASE("perplexity of the held-out text") {
    const auto golden = nlohmann::json::parse(*read_text_file(root / "tests/golden/fairytale.json"));
    const double expected = golden["heldout"]["perplexity"];
    const double f32 = perplexity(root / "models/fairytale", Type::f32);
    CHECK(std::fabs(f32 / expected - 1) < 5e-4);
    const double f16 = perplexity(root / "models/fairytale", Type::f16);
    CHECK(std::fabs(f16 / expected - 1) < 5e-4);
    const double int8 = perplexity(root / "models/fairytale-int8.gguf", Type::f16);
    CHECK(std::fabs(int8 / expected - 1) < 2e-3);
    MESSAGE("reference " << expected << ", bf16 with f32 cache " << f32 << ", with f16 cache " << f16
                         << ", int8 " << int8);
}
