// nibble perplexity: how well a model predicts a text, and how far it is from another model's predictions.
// The numbers by which quantizations are compared.
#include <chrono>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "src/engine/model_drafter.h"
#include "src/eval/perplexity.h"
#include "tools/json_text.h"
#include "tools/options.h"
#include "tools/settings.h"
#include "tools/status_line.h"

namespace nibble {
namespace {

struct PerplexityCommand {
    ModelOption model;
    RunOptions options;
    WindowOptions text;
    std::string base;
    bool json = false;
    Result<int> operator()() const;
    void print(const PerplexityResult& r, double seconds, size_t n_windows, int32_t ctx) const;
};

void PerplexityCommand::print(const PerplexityResult& r, double seconds, size_t n_windows,
                              int32_t ctx) const {
    const double error = r.stderr_nll * r.perplexity,
                 rate = seconds > 0 ? static_cast<double>(n_windows) * ctx / seconds : 0;
    if (json) {
        nlohmann::ordered_json j = {
            {"perplexity", r.perplexity}, {"stderr", error}, {"mean_nll", r.mean_nll},   {"tokens", r.tokens},
            {"windows", n_windows},       {"ctx", ctx},      {"tokens_per_second", rate}};
        if (r.has_base)
            j["base"] = {{"perplexity", r.base_perplexity},
                         {"mean_kl", r.mean_kl},
                         {"stderr_kl", r.stderr_kl},
                         {"kl_median", r.kl_median},
                         {"kl_p90", r.kl_p90},
                         {"kl_p99", r.kl_p99},
                         {"kl_max", r.kl_max},
                         {"top1_agreement", r.top1_agreement}};
        std::printf("%s\n", json_text(j, 1).c_str());
        return;
    }
    std::printf("perplexity %.4f +- %.4f over %zu tokens in %zu windows of %d, %.0f tokens/s\n", r.perplexity,
                error, r.tokens, n_windows, ctx, rate);
    if (!r.has_base) return;
    std::printf("base perplexity %.4f, ratio %.5f\n", r.base_perplexity, r.perplexity / r.base_perplexity);
    std::printf("KL divergence mean %.6f +- %.6f, median %.6f, 90 %% %.6f, 99 %% %.6f, max %.6f\n", r.mean_kl,
                r.stderr_kl, r.kl_median, r.kl_p90, r.kl_p99, r.kl_max);
    std::printf("top-1 agreement %.3f %%\n", 100 * r.top1_agreement);
}

Result<int> PerplexityCommand::operator()() const {
    const auto backends = NIBBLE_TRY(options.backends());
    const auto list = pointers(backends);
    EngineConfig config = NIBBLE_TRY(options.config());
    text.set_sizes(config.runner);
    Engine engine = NIBBLE_TRY(Engine::load(NIBBLE_TRY(model.path()), config, list));
    print_notes(engine, options, list);
    std::optional<Engine> reference;
    if (!base.empty()) {
        EngineConfig plain = config;  // the reference is the model alone, with the default cache
        plain.runner.k_type = plain.runner.v_type = RunnerConfig{}.k_type;
        reference = NIBBLE_TRY(Engine::load(NIBBLE_TRY(resolve_model(base)), plain, list));
        if (reference->spec().n_vocab != engine.spec().n_vocab)
            return Error{ErrorCode::invalid_argument, "--base", "has another vocabulary",
                         "give the model it was made from"};
        if (const std::string other = different_token(engine.tokenizer(), reference->tokenizer());
            !other.empty())
            return Error{ErrorCode::invalid_argument, "--base", cat("has other tokens: ", other),
                         "give the model it was made from"};
    }
    const auto cut = NIBBLE_TRY(text.cut(engine));
    ThreadPool pool(options.threads);
    PerplexityMeter meter(pool);
    Scorer scorer(engine);
    std::optional<Scorer> base_scorer;
    if (reference) base_scorer.emplace(*reference);
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    StatusLine status;
    for (size_t i = 0; i < cut.size(); ++i) {
        std::span<float> base_logits;
        if (base_scorer) base_logits = NIBBLE_TRY(base_scorer->logits(cut[i]));
        const auto logits = NIBBLE_TRY(scorer.logits(cut[i]));
        NIBBLE_TRY(meter.add(cut[i], logits, base_logits, static_cast<size_t>(engine.spec().n_vocab)));
        char perplexity[32];
        std::snprintf(perplexity, sizeof perplexity, "%.4f", meter.result().perplexity);
        status.show(cat(i + 1, "/", cut.size(), "  ", perplexity));
    }
    status.clear();
    print(meter.result(), elapsed(), cut.size(), config.runner.ctx);
    return exit_ok;
}

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<PerplexityCommand>();
    c->model.add(flags);
    c->text.add(flags);
    flags
        .value("--base", c->base,
               "compare with this model (its cache f16): KL divergence and top-1 agreement")
        .type_name("MODEL");
    flags.value("--stride", c->text.stride, "tokens between the starts of windows [a window, --ctx]")
        .range(1, 1 << 30);
    flags.on("--json", c->json, "the result as JSON");
    c->options.add_ctx(flags, WindowOptions::ctx_help);
    c->options.add(flags);
    flags.examples(
        "  nibble perplexity -m model.gguf -f text.txt --ctx 512\n"
        "  nibble perplexity -m int4.gguf --base bf16.gguf -f text.txt --json");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command perplexity_command;
const Command perplexity_command{"perplexity", "Measure a model on a text, alone or against another", setup};

}  // namespace nibble
