// The whole forward pass against a float64 reference: top logits and greedy tokens of five prompts.
// F32 cache and F32 arithmetic on the BF16 checkpoint.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "tests/golden/single_sequence.h"

using namespace nibble;

namespace {

const std::filesystem::path root = NIBBLE_SOURCE_DIR;

nlohmann::json golden() {
    return nlohmann::json::parse(*read_text_file(root / "tests/golden/fairytale.json"));
}

}  // namespace

TEST_CASE("logits and greedy tokens equal the float64 reference") {
    auto model = SingleSequence::load(root / "models/fairytale", Type::f32);
    REQUIRE_MESSAGE(model, (model ? "" : model.error().message()));
    double worst = 0;
    const nlohmann::json reference = golden();
    for (const auto& prompt : reference["prompts"]) {
        INFO(prompt["text"].get<std::string>());
        const auto ids = prompt["ids"].get<std::vector<int32_t>>();
        model->restart();
        auto logits = model->feed(ids);
        REQUIRE(logits);
        for (const auto& top : prompt["last_logits_top10"]) {
            const double difference = std::fabs((*logits)[top[0].get<size_t>()] - top[1].get<double>());
            worst = std::max(worst, difference);
            CHECK(difference < 1e-3);
        }
        for (const auto& expected : prompt["greedy_40"]) {
            const auto best = static_cast<int32_t>(std::ranges::max_element(*logits) - logits->begin());
            REQUIRE(best == expected.get<int32_t>());
            logits = model->feed(std::vector{best});
            REQUIRE(logits);
        }
    }
    MESSAGE("worst logit difference " << worst);
}
