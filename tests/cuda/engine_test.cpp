// Whole models on the CUDA backend: the same text as the CPU's, with all layers there and with some.
// The emulated card is slow, so few tokens are made.
#include "src/engine/engine.h"

#include <cmath>
#include <cstdlib>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/cpu/cpu_backend.h"
#include "tests/cuda/mirror.h"
#include "tests/exact_cpu.h"
#include "tests/nmse.h"
#include "tests/output_rows.h"

using namespace nibble;

namespace {

struct Logits {
    std::vector<float> prompt, next;
};

const std::vector<int32_t> few_tokens{5, 17, 42, 7};
// So many that a gated unit's results have room for the activations of the product behind it.
const std::vector<int32_t> some_tokens{9, 3, 24, 6, 31, 15, 8, 11, 2, 40, 5, 17, 42, 7, 28, 36, 10};

// Logits of the last prompt token, and of one more token after it.
Logits logits(const std::string& model, std::span<Backend* const> backends, int32_t gpu_layers,
              MemoryForecast* forecast = nullptr, Observer* observer = nullptr,
              const std::vector<int32_t>& prompt = few_tokens) {
    RunnerConfig config;
    config.ctx = 64;
    config.gpu_layers = gpu_layers;
    auto file = TensorFile::open(cat(NIBBLE_SOURCE_DIR, "/", model));
    REQUIRE(file);
    auto runner = ModelRunner::load(std::move(*file), config, backends);
    REQUIRE_MESSAGE(runner, runner.error().message());
    if (forecast) *forecast = runner->memory();
    const size_t groups = runner->spec().kv_groups.size();
    const std::vector<int32_t> pages{0, 1};
    Logits result;
    const auto step = [&](std::vector<int32_t> tokens, int32_t first) {
        Batch b;
        const auto n = static_cast<int32_t>(tokens.size());
        b.tokens = std::move(tokens);
        for (int32_t i = 0; i < n; ++i) b.positions.push_back(first + i);
        b.sequences = {{0, n}};
        b.out_rows = {n - 1};
        b.slots.assign(groups, b.positions);
        b.pages.assign(groups, {pages});
        auto out = runner->run(b, observer);
        REQUIRE_MESSAGE(out, out.error().message());
        return std::vector<float>(out->begin(), out->end());
    };
    result.prompt = step(prompt, 0);
    const auto n = static_cast<int32_t>(prompt.size());
    for (int32_t i = 0; i < 3; ++i) result.next = step({11 + i}, n + i);  // the third is a replayed graph
    return result;
}

}  // namespace

TEST_CASE("a model on the GPU gives the CPU's logits, whole and split") {
    const auto cpu = exact_cpu(2);
    const auto gpu = test_card();
    if (!gpu) return;
    Backend* const both[] = {cpu.get(), gpu.get()};
    for (const std::string model :
         {"models/fairytale-int8.gguf", "models/fairytale", "tests/golden/models/deepseek_v3",
          "tests/golden/models/qwen3_5", "tests/golden/models/lfm2", "tests/golden/models/gemma4_moe",
          "tests/golden/models/granitehybrid_dense", "tests/golden/models/nemotron_h_moe",
          "tests/golden/models/nemotron_h_latent", "tests/golden/models/qwen3_next",
          "tests/golden/models/lfm3"}) {
        INFO(model);
        const Logits expected = logits(model, std::span(both, 1), 0);
        for (const int32_t layers : {-1, 2}) {
            INFO("gpu layers " << layers);
            MemoryForecast f;
            const Logits actual = logits(model, both, layers, &f);
            CHECK(f.gpu_layers == (layers < 0 ? f.n_layers : layers));
            // int8 activations on one side, f16 on the other.
            CHECK(nmse(expected.prompt, actual.prompt) < 1e-3);
            CHECK(nmse(expected.next, actual.next) < 1e-3);
        }
    }
    CHECK(gpu->graph_launches() > 0);
}

TEST_CASE("layers that share keys and values go to the GPU together") {
    auto cpu = CpuBackend::create({2, "", true});
    const auto gpu = test_card();
    REQUIRE(cpu);
    if (!gpu) return;
    Backend* const both[] = {cpu->get(), gpu.get()};
    const std::string model = "tests/golden/models/gemma4";
    const Logits expected = logits(model, std::span(both, 1), 0);
    for (const int32_t layers : {-1, 5}) {  // the first one has keys that no other attends to
        const Logits actual = logits(model, both, layers);
        CHECK(nmse(expected.prompt, actual.prompt) < 1e-3);
        CHECK(nmse(expected.next, actual.next) < 1e-3);
    }
    RunnerConfig config;
    config.gpu_layers = 4;
    auto file = TensorFile::open(cat(NIBBLE_SOURCE_DIR, "/", model));
    REQUIRE(file);
    const auto refused = ModelRunner::load(std::move(*file), config, both);
    REQUIRE(!refused);
    CHECK(refused.error().message().find("at least 5") != std::string::npos);
}

TEST_CASE("rows of several texts on the GPU, of which some are wanted, have the CPU's logits") {
    const auto cpu = exact_cpu(2);
    const auto gpu = test_card();
    if (!gpu) return;
    Backend* const both[] = {cpu.get(), gpu.get()};
    const auto model = cat(NIBBLE_SOURCE_DIR, "/tests/golden/models/gemma4");
    auto expected = OutputRows::load(model, std::span(both, 1)), actual = OutputRows::load(model, both);
    REQUIRE(expected);
    REQUIRE_MESSAGE(actual, actual.error().message());
    const std::vector<int32_t> long_text(19, 3);
    using Step = std::vector<OutputRows::Part>;
    for (const Step& step :
         {Step{{some_tokens, 0, 0}, {few_tokens, 0, 0}}, Step{{few_tokens, 17, 0}, {some_tokens, 4, 1}},
          Step{{few_tokens, 21, 2}, {few_tokens, 21, 0}, {long_text, 0, 0}},
          Step{{{8}, 25, 0}, {few_tokens, 25, 0}, {some_tokens, 19, 5}},
          Step{{{8}, 26, 1}, {{9}, 29, 1}, {{1}, 36, 1}}}) {
        const auto e = expected->step(step), a = actual->step(step);
        REQUIRE(e);
        REQUIRE_MESSAGE(a, a.error().message());
        CHECK(e->size() == a->size());
        if (!e->empty()) CHECK(nmse(*e, *a) < 1e-3);
    }
}

TEST_CASE("a step that cannot be recorded is done without") {
    auto cpu = CpuBackend::create({1, "", true});
    const auto recorded = test_card(), refused = test_card();
    REQUIRE(cpu);
    if (!recorded || !refused) return;
    Backend* const first[] = {cpu->get(), recorded.get()};
    Backend* const second[] = {cpu->get(), refused.get()};
    const std::string model = "tests/golden/models/qwen2";
    const Logits expected = logits(model, first, -1);
    REQUIRE(::setenv("NIBBLE_CARD_GRAPHS", "0", 1) == 0);  // a card does not know that, and records
    const Logits actual = logits(model, second, -1);
    ::unsetenv("NIBBLE_CARD_GRAPHS");
    CHECK(recorded->graph_launches() > 0);
    CHECK(actual.prompt == expected.prompt);
    CHECK(actual.next == expected.next);
}

TEST_CASE("instructions that share or overlap launches give the bits of those by themselves") {
    // Without gemv: its norm adds the squares in another order.
    auto apart = CudaBackend::create({.graphs = false, .joined = false, .overlapped = false, .gemv = false});
    const auto joined = test_card({.gemv = false});
    auto cpu = CpuBackend::create({1, "", true});
    REQUIRE(cpu);
    if (!joined) return;
    REQUIRE(apart);
    for (const std::string model :
         {"models/fairytale-int8.gguf", "models/fairytale", "tests/golden/models/qwen2",
          "tests/golden/models/cohere2", "tests/golden/models/qwen3_moe", "tests/golden/models/olmo2",
          "tests/golden/models/qwen3_5_moe"}) {
        INFO(model);
        Backend* const first[] = {cpu->get(), joined.get()};
        Backend* const second[] = {cpu->get(), apart->get()};
        std::vector<std::vector<int32_t>> prompts{few_tokens};
        if (model.starts_with("tests/golden")) prompts.push_back(some_tokens);
        for (const auto& prompt : prompts) {
            const int64_t before = joined->joined_instructions();
            const Logits a = logits(model, first, -1, nullptr, nullptr, prompt),
                         b = logits(model, second, -1, nullptr, nullptr, prompt);
            CHECK(joined->joined_instructions() > before);
            CHECK(a.prompt == b.prompt);
            CHECK(a.next == b.next);
        }
    }
    CHECK(apart->get()->joined_instructions() == 0);
}

namespace {

// Reads every activation that it is shown.
struct Reader final : Observer {
    int64_t values = 0, bad = 0;
    void before(const BoundInstr& b) override { read(b.in); }
    void after(const BoundInstr& b) override { read(b.out); }
    void read(const std::vector<Tensor>& list) {
        for (const Tensor& t : list)
            for (int64_t r = 0; t.data && t.type == Type::f32 && r < t.rows; ++r)
                for (int64_t c = 0; c < t.cols; ++c, ++values) bad += !std::isfinite(t.row(r)[c]);
    }
};

}  // namespace

TEST_CASE("many rows share launches too: the same bits, and the CPU's logits") {
    const auto joined = test_card({.most_streamed = 0});
    auto apart =
        CudaBackend::create({.graphs = false, .joined = false, .overlapped = false, .most_streamed = 0});
    auto cpu = CpuBackend::create({2, "", true});
    REQUIRE(cpu);
    if (!joined) return;
    REQUIRE(apart);
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < 40; ++i) prompt.push_back(3 + i * 7 % 50);
    for (const std::string model :
         {"tests/golden/models/qwen2", "tests/golden/models/olmo2", "tests/golden/models/gemma3"}) {
        INFO(model);
        Backend* const first[] = {cpu->get(), joined.get()};
        Backend* const second[] = {cpu->get(), apart->get()};
        const int64_t before = joined->joined_instructions();
        const Logits a = logits(model, first, -1, nullptr, nullptr, prompt),
                     b = logits(model, second, -1, nullptr, nullptr, prompt),
                     c = logits(model, std::span(first, 1), 0, nullptr, nullptr, prompt);
        CHECK(joined->joined_instructions() > before);
        CHECK(a.prompt == b.prompt);
        CHECK(a.next == b.next);
        CHECK(nmse(c.prompt, a.prompt) < 1e-3);
    }
}

TEST_CASE("an observer reads the GPU's activations in host memory and changes no bit") {
    auto cpu = CpuBackend::create({1, "", true});
    const auto gpu = test_card();
    REQUIRE(cpu);
    if (!gpu) return;
    Backend* const both[] = {cpu->get(), gpu.get()};
    for (const std::string model : {"tests/golden/models/qwen2", "tests/golden/models/deepseek_v3"}) {
        INFO(model);
        Reader reader;
        const Logits plain = logits(model, both, -1), seen = logits(model, both, -1, nullptr, &reader);
        CHECK(plain.prompt == seen.prompt);
        CHECK(plain.next == seen.next);
        CHECK(reader.values > 1000);
        CHECK(reader.bad == 0);
    }
}

namespace {

std::vector<Token> generated(Engine& engine, const SamplerParams& sampling, int32_t logprobs) {
    Request r;
    r.prompt = engine.tokenizer().encode("Once upon");
    r.sampling = sampling;
    r.sampling.seed = 11;
    r.max_tokens = 3;
    r.ignore_eos = true;
    r.logprobs = logprobs;
    REQUIRE(engine.submit(std::move(r)));
    std::vector<Token> tokens;
    while (!engine.idle()) {
        const auto report = engine.step();
        REQUIRE_MESSAGE(report, report.error().message());
        for (const Event& e : report->events) tokens.push_back(e.token);
    }
    return tokens;
}

}  // namespace

TEST_CASE("tokens that the GPU draws, or lists among the best, are those sampled from all logits") {
    auto cpu = CpuBackend::create({2, "", true});
    const auto gpu = test_card();
    REQUIRE(cpu);
    if (!gpu) return;
    Backend* const both[] = {cpu->get(), gpu.get()};
    EngineConfig config;
    config.runner.ctx = 64;
    auto engine = Engine::load(cat(NIBBLE_SOURCE_DIR, "/models/fairytale-int8.gguf"), config, both);
    REQUIRE_MESSAGE(engine, engine.error().message());
    for (const char* setting : {"temperature=0", "repeat_penalty=1.3", "top_k=0",
                                "samplers=dry,top_p,temperature", "samplers=dry,temperature"}) {
        INFO(setting);
        SamplerParams sampling;
        const std::string_view text = setting;
        const size_t at = text.find('=');
        REQUIRE(set(sampling, text.substr(0, at), text.substr(at + 1)).ok());
        const size_t launches = engine->runner().launches();
        const auto drawn = generated(*engine, sampling, -1);
        CHECK(engine->runner().launches() > launches);
        sampling.dry_multiplier = 1e-9;  // which no device does: from the list of the best
        const auto from_list = generated(*engine, sampling, -1);
        const FirstTokens first = engine->runner().first_tokens(0);
        CHECK(first.list.size() == 256);
        CHECK((first.total.weight >= 1ull << weight_bits) == (text[0] == 's' || text == "top_k=0"));
        CHECK(drawn == from_list);
        CHECK(from_list.size() == 3);
        CHECK(from_list == generated(*engine, sampling, 0));  // a log-probability needs all logits
    }
}
