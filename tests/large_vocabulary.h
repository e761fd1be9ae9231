// A random model with a predictor and so large a vocabulary that guesses look at its first tokens alone.
// Included by tests of both backends.
#pragma once

#include <numeric>

#include <doctest/doctest.h>

#include "src/engine/model_runner.h"
#include "src/eval/synthetic.h"

namespace nibble {

// The logits of the first tokens are those among all, to the last bit.
inline void check_first_tokens(std::span<Backend* const> backends, std::string_view recipe) {
    ModelShape shape;
    for (const ModelShape& s : all_shapes())
        if (s.name == "qwen3.5-0.8b") shape = s;
    shape.n_layers = 4, shape.n_embd = 64, shape.n_ff = 64, shape.n_heads = 2, shape.n_kv_heads = 1;
    shape.head_dim = 32, shape.delta_k_heads = 2, shape.delta_v_heads = 2, shape.delta_dim = 16;
    shape.n_vocab = 70'007;
    ThreadPool pool(2);
    auto model = synthetic_model(shape, recipe, Fill::random, 1, pool);
    REQUIRE_MESSAGE(model, (model ? "" : model.error().message()));
    RunnerConfig config;
    config.ctx = 64;
    config.max_sequences = 3;
    config.predict = true;
    auto runner = ModelRunner::load(std::move(*model), config, backends);
    REQUIRE_MESSAGE(runner, (runner ? "" : runner.error().message()));
    const auto first = static_cast<size_t>(first_tokens(shape.n_vocab)),
               all = static_cast<size_t>(shape.n_vocab);
    CHECK(first == 1 << 15);
    for (const size_t rows : {1, 3}) {
        std::vector<float> hidden(rows * static_cast<size_t>(shape.n_embd));
        for (size_t i = 0; i < hidden.size(); ++i) hidden[i] = static_cast<float>(i * 7919 % 101) / 50 - 1;
        const auto some = runner->predictor()->logits(hidden, false);
        REQUIRE(some);
        REQUIRE(some->size() == rows * first);
        const std::vector<float> few(some->begin(), some->end());
        const auto many = runner->predictor()->logits(hidden, true);
        REQUIRE(many);
        REQUIRE(many->size() == rows * all);
        for (size_t r = 0; r < rows; ++r)
            CHECK(
                std::ranges::equal(many->subspan(r * all, first), std::span(few).subspan(r * first, first)));
    }
}

}  // namespace nibble
