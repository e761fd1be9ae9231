// What tests of conversions share: a scratch folder, the bundled checkpoint, and what has become of it.
#pragma once

#include <filesystem>

#include <doctest/doctest.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "ggml/cpu/cpu_backend.h"
#include "src/eval/perplexity.h"
#include "src/model/vocab_file.h"
#include "src/quant/convert.h"
#include "tests/golden/single_sequence.h"

namespace nibble {

inline const std::filesystem::path root = NIBBLE_SOURCE_DIR, checkpoint = root / "models/fairytale";

struct Scratch {
    std::filesystem::path dir = std::filesystem::temp_directory_path() / cat("nibble-quant-", ::getpid());
    Scratch() { std::filesystem::create_directories(dir); }
    ~Scratch() { std::filesystem::remove_all(dir); }
    size_t files() const {
        return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir), {}));
    }
};

inline std::unique_ptr<OpenedModel> open(const std::filesystem::path& path) {
    auto file = TensorFile::open(path);
    REQUIRE_MESSAGE(file, (file ? "" : file.error().message()));
    auto model = open_model(std::move(*file));
    REQUIRE_MESSAGE(model, (model ? "" : model.error().message()));
    return std::move(*model);
}

inline Result<std::vector<TensorReport>> quantize(const OpenedModel& model, std::string_view type,
                                                  const std::filesystem::path& to,
                                                  ConvertOptions options = {}, int threads = 2) {
    const Vocab vocab = NIBBLE_TRY(read_vocab(model.file));
    const ConvertPlan plan = NIBBLE_TRY(plan_conversion(model, {NIBBLE_TRY(find_recipe(type)), true, {}}));
    ThreadPool pool(threads);
    return convert(model, vocab, plan, to, pool, options);
}

inline std::shared_ptr<Backend> cpu_backend() { return std::move(*CpuBackend::create()); }

inline std::vector<float> logits_of(const std::filesystem::path& path,
                                    std::shared_ptr<Backend> backend = cpu_backend()) {
    auto s = SingleSequence::load(path, Type::f32, std::move(backend));
    REQUIRE_MESSAGE(s, (s ? "" : s.error().message()));
    std::vector<Token> tokens;
    for (int i = 0; i < 60; ++i) tokens.push_back((i * 389 + 7) % 300);
    const auto logits = s->feed(tokens);
    REQUIRE(logits);
    return {logits->begin(), logits->end()};
}

inline PerplexityResult against_checkpoint(const std::filesystem::path& path, size_t windows) {
    const auto backend = cpu_backend();
    Backend* const list[] = {backend.get()};
    EngineConfig config;
    config.runner.ctx = config.runner.batch_tokens = config.runner.max_outputs = 512;
    auto model = Engine::load(path, config, list), base = Engine::load(checkpoint, config, list);
    REQUIRE_MESSAGE(model, (model ? "" : model.error().message()));
    const auto tokens = base->tokenizer().encode(*read_text_file(root / "tests/data/alice.txt"));
    auto cut = cut_windows(tokens, 512, 512, {});
    cut.resize(windows);
    Scorer scorer(*model), base_scorer(*base);
    ThreadPool pool(2);
    PerplexityMeter meter(pool);
    for (const Window& w : cut) {
        const auto b = base_scorer.logits(w), l = scorer.logits(w);
        REQUIRE(meter.add(w, *l, *b, 4096).ok());
    }
    return meter.result();
}

}  // namespace nibble
