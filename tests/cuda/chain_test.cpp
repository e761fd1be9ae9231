// Products of one row that run one after the other in a launch, and what follows them there: the bits of
// launches of their own, in whole models.
#include <doctest/doctest.h>

#include "ggml/cpu/cpu_backend.h"
#include "src/eval/synthetic.h"
#include "tests/cuda/mirror.h"
#include "tests/output_rows.h"

using namespace nibble;

namespace {

// Columns that a row alone is multiplied by in units, and row blocks of which some thread blocks have more
// turns than others.
ModelShape small_shape(std::string_view arch) {
    ModelShape shape{"small", arch};
    shape.n_layers = 2, shape.n_embd = 512, shape.n_ff = 1024, shape.n_heads = 8, shape.n_kv_heads = 2;
    shape.head_dim = 64, shape.n_vocab = 300, shape.n_ctx = 64;
    shape.qkv_bias = arch == "qwen2", shape.qk_norm = arch == "qwen3";
    return shape;
}

// Columns that are no whole units.
ModelShape broken_shape() {
    ModelShape shape = small_shape("llama");
    shape.n_embd = 576, shape.n_ff = 1344;
    return shape;
}

// Of the next tokens of so many sequences. Of four steps the third and fourth are replayed.
std::vector<float> logits_of(const ModelShape& shape, std::string_view recipe, int32_t sequences,
                             CudaBackend& card, int32_t steps = 4) {
    auto cpu = CpuBackend::create({1, "", true});
    REQUIRE(cpu);
    ThreadPool pool(1);
    auto model = synthetic_model(shape, recipe, Fill::random, 1, pool);
    REQUIRE_MESSAGE(model.ok(), (model ? "" : model.error().message()));
    Backend* const both[] = {cpu->get(), &card};
    auto rows = OutputRows::load(std::move(*model), both);
    REQUIRE_MESSAGE(rows.ok(), (rows ? "" : rows.error().message()));
    std::vector<float> logits;
    for (int32_t i = 0; i < steps; ++i) {
        std::vector<OutputRows::Part> parts;
        for (int32_t s = 0; s < sequences; ++s) parts.push_back({{5 + 7 * i + s}, i, 1});
        const auto step = rows->step(parts);
        REQUIRE_MESSAGE(step.ok(), (step ? "" : step.error().message()));
        logits.insert(logits.end(), step->begin(), step->end());
    }
    return logits;
}

struct Outcome {
    std::vector<float> logits;
    int64_t joined = 0;  // instructions without a launch of their own, of all steps but the replayed ones
};
Outcome outcome(const ModelShape& shape, std::string_view recipe, int32_t sequences, Chains chains) {
    const auto card = test_card({.chains = chains});
    if (!card) return {};
    Outcome o;
    o.logits = logits_of(shape, recipe, sequences, *card);
    o.joined = card->joined_instructions();
    return o;
}

// That instructions share launches, `more` of them in each of two steps, and that it changes no bit.
void check(const ModelShape& shape, std::string_view recipe, int32_t sequences, int64_t more) {
    INFO(recipe << ", " << sequences << " sequences");
    const Outcome apart = outcome(shape, recipe, sequences, Chains::off),
                  together = outcome(shape, recipe, sequences, Chains::on);
    if (apart.logits.empty()) return;
    CHECK(together.logits == apart.logits);
    CHECK(together.joined - apart.joined == 2 * more);
}

// Of two layers: before attention the product and the store; behind it three products, and the next layer's
// two. Not with attention then, which takes the store otherwise. And the output's product, unless its type is
// another.
constexpr int64_t layers_chained = 1 + 4 + 2 - 2, all_chained = layers_chained + 1;

}  // namespace

TEST_CASE("products of a row that follow each other in a launch give the bits of launches by themselves") {
    check(small_shape("llama"), "int4", 1, layers_chained);
    check(small_shape("llama"), "nf4", 1, layers_chained);
    check(small_shape("llama"), "bf16", 1, all_chained);
    check(small_shape("qwen2"), "int8", 1, all_chained);
    check(small_shape("qwen3"), "q4_0", 1, all_chained);
    check(broken_shape(), "int8", 1, all_chained);
}

TEST_CASE(
    "products of some rows that follow each other in a launch give the bits of launches by themselves") {
    check(small_shape("llama"), "int4", 3, layers_chained);
    check(small_shape("llama"), "nf4", 3, layers_chained);
    check(small_shape("qwen2"), "int8", 2, all_chained);
    check(small_shape("qwen3"), "q4_0", 3, all_chained);
    check(broken_shape(), "bf16", 2, all_chained);
}

TEST_CASE("a step is timed in both ways, and gives the same bits in any") {
    constexpr int32_t steps = 18;  // two alone, one more until it is recorded, six replays of each way
    const auto apart = test_card({.chains = Chains::off}), measured = test_card();
    if (!apart) return;
    ModelShape shape = small_shape("llama");
    shape.n_layers = 1, shape.n_ff = 512;
    const std::vector<float> expected = logits_of(shape, "int4", 1, *apart, steps),
                             actual = logits_of(shape, "int4", 1, *measured, steps);
    CHECK(actual == expected);
    CHECK(apart->findings().empty());
    const std::vector<std::string> findings = measured->findings();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].starts_with("a step of 1 row takes "));
    CHECK(measured->findings().empty());
}
