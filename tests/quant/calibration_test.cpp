// What a text says of a model, and what conversions make of it: importance and feedback.
// The bundled checkpoint and small random ones serve as models.
#include <cmath>

#include "ggml/types/search.h"
#include "src/eval/calibrate.h"
#include "src/eval/moments.h"
#include "tests/quant/conversion.h"

using namespace nibble;
namespace fs = std::filesystem;

namespace {

// A model, a text in windows, and what the one says of the other.
struct Measured {
    std::shared_ptr<Backend> backend = cpu_backend();
    std::optional<Engine> engine;
    std::vector<Window> windows;
    ThreadPool pool;
    size_t runs = 0;

    Measured(const fs::path& path, std::span<const Token> tokens, int32_t ctx, int threads = 2)
        : windows(cut_windows(tokens, static_cast<size_t>(ctx), static_cast<size_t>(ctx), {})),
          pool(threads) {
        Backend* const list[] = {backend.get()};
        EngineConfig config;
        config.runner.ctx = config.runner.batch_tokens = config.runner.max_outputs = ctx;
        auto loaded = Engine::load(path, config, list);
        REQUIRE_MESSAGE(loaded, (loaded ? "" : loaded.error().message()));
        engine.emplace(std::move(*loaded));
    }
    Importance importance() {
        Scorer scorer(*engine);
        ImportanceObserver observer;
        for (const Window& w : windows) REQUIRE(scorer.logits(w, &observer));
        Importance collected;
        REQUIRE(observer.finish(engine->runner().program(), collected).ok());
        return collected;
    }
    std::unique_ptr<MomentMeter> meter(const OpenedModel& model, std::string_view type,
                                       size_t memory = size_t{1} << 30) {
        const auto plan = plan_conversion(model, {*find_recipe(type), true, {}});
        REQUIRE(plan);
        return std::make_unique<MomentMeter>(
            *engine, windows, pool,
            MomentMeter::Config{matrices_with_search(*plan), memory,
                                [this](size_t window, size_t) { runs += window == 0; }});
    }
};

// Distinct enough for the small random models.
std::vector<Token> some_tokens(int32_t n) {
    std::vector<Token> tokens;
    for (int32_t i = 0; i < n; ++i) tokens.push_back(3 + i * 7 % 90);
    return tokens;
}

std::vector<Token> tokens_of(const OpenedModel& model, std::string_view text) {
    const auto tokenizer = read_tokenizer(model.file);
    REQUIRE(tokenizer);
    return tokenizer->encode(*read_text_file(root / "tests/data" / text));
}

}  // namespace

TEST_CASE("importance of experts: each counts its own rows") {
    const Scratch s;
    const fs::path folder = root / "tests/golden/models/qwen3_moe";
    const Importance collected = Measured(folder, some_tokens(64), 64).importance();
    REQUIRE(collected.write(s.dir / "imatrix").ok());
    const auto read = Importance::read(s.dir / "imatrix");
    REQUIRE(read);
    for (const std::string_view part : {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
        const auto& e = read->tensors.at(cat("blk.1.", part, ".weight"));
        REQUIRE(e.expert_counts.size() == 8);
        CHECK(e.sums.size() == 8 * 64);
        CHECK(e.count == 64 * 3);  // three experts per token
        CHECK(*std::ranges::max_element(e.expert_counts) <= 64);
        CHECK(e.expert_counts == collected.tensors.at(cat("blk.1.", part, ".weight")).expert_counts);
    }

    // Of another number of experts it was not made, and one list is for all.
    CHECK(!read->weights("blk.1.ffn_down_exps.weight", 64, 4));
    CHECK(!read->weights("blk.1.ffn_down_exps.weight", 64, 1));
    CHECK(read->weights("blk.1.attn_q.weight", 64, 8));

    // Different experts get different weights, and the weighted search changes the bytes.
    const auto weights = read->weights("blk.1.ffn_down_exps.weight", 64, 8);
    REQUIRE(weights);
    REQUIRE(weights->size() == 8 * 64);
    CHECK(!std::equal(weights->begin(), weights->begin() + 64, weights->begin() + 64));
    const auto model = open(folder);
    ConvertOptions plain, weighted;
    weighted.importance = &*read;
    const auto a = quantize(*model, "q4_0", s.dir / "plain.gguf", plain);
    const auto b = quantize(*model, "q4_0", s.dir / "weighted.gguf", weighted);
    REQUIRE(a);
    REQUIRE(b);
    const auto bytes = [&](std::string_view file) {
        const auto f = TensorFile::open(s.dir / file);
        REQUIRE(f);
        const auto d = f->find("blk.1.ffn_down_exps.weight")->data;
        return std::vector<std::byte>(d.begin(), d.end());
    };
    CHECK(bytes("plain.gguf").size() == 8 * 64 * 64 / 32 * 18);
    CHECK(bytes("plain.gguf") != bytes("weighted.gguf"));
}

TEST_CASE("importance of latent attention: every head counts all rows of its own matrix") {
    Measured measured(root / "tests/golden/models/deepseek_v2", some_tokens(16), 16);
    REQUIRE(measured.windows.size() == 1);
    const Importance collected = measured.importance();
    for (const std::string_view part : {"attn_k_b", "attn_v_b"}) {
        const auto& e = collected.tensors.at(cat("blk.0.", part, ".weight"));
        REQUIRE(e.expert_counts.size() > 1);  // heads
        for (const float count : e.expert_counts) CHECK(count == 16);
        CHECK(std::ranges::all_of(e.sums, [](float x) { return x > 0; }));
    }
}

TEST_CASE("importance: collected, written, read, and used") {
    const Scratch s;
    const auto model = open(checkpoint);
    const auto tokens = tokens_of(*model, "alice.txt");
    Measured measured(checkpoint, std::span(tokens).last(5000), 512);
    Importance collected = measured.importance();
    collected.dataset = "alice";
    CHECK(collected.tensors.size() == 6 * 7 + 1);
    CHECK(collected.tensors.at("blk.2.attn_q.weight").count ==
          static_cast<float>(measured.windows.size() * 512));
    CHECK(collected.tensors.at("blk.2.attn_q.weight").sums ==
          collected.tensors.at("blk.2.attn_v.weight").sums);
    REQUIRE(collected.write(s.dir / "imatrix").ok());
    const auto read = Importance::read(s.dir / "imatrix");
    REQUIRE(read);
    for (const auto& [name, e] : collected.tensors) {
        CHECK(read->tensors.at(name).sums == e.sums);
        CHECK(read->tensors.at(name).count == e.count);
    }
    CHECK(!Importance::read(root / "models/fairytale-int8.gguf"));
    CHECK(!read->weights("blk.0.ffn_down.weight", 100, 1));

    // The order that the table of the README shows: plain above searched above weighted, more bits below.
    const auto kl = [&](std::string_view type, bool search, bool weighted) {
        ConvertOptions o;
        o.search = search;
        o.importance = weighted ? &*read : nullptr;
        REQUIRE(quantize(*model, type, s.dir / "q.gguf", o));
        return against_checkpoint(s.dir / "q.gguf", 4).mean_kl;
    };
    const double q4_0 = kl("q4_0", false, false), int4_plain = kl("int4", false, false),
                 int4_search = kl("int4", true, false), int4 = kl("int4", true, true),
                 nf4 = kl("nf4", true, true), int8 = kl("int8", true, true);
    MESSAGE("mean KL: q4_0 " << q4_0 << ", int4 plain " << int4_plain << " search " << int4_search
                             << " importance " << int4 << ", nf4 " << nf4 << ", int8 " << int8);
    CHECK(int4_search < int4_plain);
    CHECK(int4 < int4_search);
    CHECK(int4 < 0.5 * q4_0);
    CHECK(nf4 < 0.7 * q4_0);
    CHECK(int8 < 0.1 * int4);
}

TEST_CASE("perplexity windows: overlap, BOS, incomplete ends") {
    std::vector<Token> text(10);
    for (int i = 0; i < 10; ++i) text[static_cast<size_t>(i)] = i;
    const auto plain = cut_windows(text, 4, 4, {});
    REQUIRE(plain.size() == 2);
    CHECK(plain[1].tokens == std::vector<Token>{4, 5, 6, 7});
    CHECK(plain[1].first_scored == 1);
    const auto overlap = cut_windows(text, 4, 2, Token{99});
    REQUIRE(overlap.size() == 4);
    CHECK(overlap[1].tokens == std::vector<Token>{99, 3, 4, 5});
    CHECK(overlap[1].first_scored == 2);
    CHECK(cut_windows(text, 11, 11, {}).empty());

    // Two positions whose numbers can be worked out by hand.
    ThreadPool pool(2);
    PerplexityMeter meter(pool);
    const Window w{{0, 1, 0}, 1};
    const float ln3 = std::log(3.0f);
    const std::vector<float> logits = {0, ln3, ln3, 0, 0, 0}, base = {0, 0, ln3, 0, 0, 0};
    REQUIRE(meter.add(w, logits, base, 2).ok());
    const PerplexityResult r = meter.result();
    CHECK(r.tokens == 2);
    CHECK(r.perplexity == doctest::Approx(4.0 / 3));
    CHECK(r.base_perplexity == doctest::Approx(std::sqrt(2.0 * 4 / 3)));
    CHECK(r.mean_kl == doctest::Approx(0.5 * (0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3))));
    CHECK(r.top1_agreement == doctest::Approx(0.5));
}

TEST_CASE("feedback: less is lost, and neither threads nor memory change the file") {
    const Scratch s;
    const auto model = open(checkpoint);
    const auto tokens = tokens_of(*model, "calibration.txt");
    const auto text = std::span(tokens).first(128 * 10);
    Measured measured(checkpoint, text, 128), alone(checkpoint, text, 128, 1);

    ConvertOptions o;
    const auto meter = measured.meter(*model, "nf4");
    o.feedback = meter.get();
    const auto reports = quantize(*model, "nf4", s.dir / "with.gguf", o);
    REQUIRE_MESSAGE(reports, (reports ? "" : reports.error().message()));
    CHECK(std::ranges::count(*reports, true, &TensorReport::with_feedback) == 6 * 7 + 1);
    CHECK(meter->left_out().empty());
    CHECK(measured.runs == 1);  // of the text
    REQUIRE(quantize(*model, "nf4", s.dir / "without.gguf"));
    const double with = against_checkpoint(s.dir / "with.gguf", 1).mean_kl,
                 without = against_checkpoint(s.dir / "without.gguf", 1).mean_kl;
    MESSAGE("nf4: mean KL " << with << " with feedback, " << without << " without");
    CHECK(with < 0.6 * without);

    // With memory for two layers the text runs more often.
    const auto few = alone.meter(*model, "nf4", 4 * Feedback::bytes(768));
    o.feedback = few.get();
    REQUIRE(quantize(*model, "nf4", s.dir / "few.gguf", o, 3));
    CHECK(alone.runs == 3);
    CHECK(*read_text_file(s.dir / "few.gguf") == *read_text_file(s.dir / "with.gguf"));

    // What does not fit at all is rounded without, and named.
    const auto small = alone.meter(*model, "nf4", Feedback::bytes(300));
    o.feedback = small.get();
    const auto rest = quantize(*model, "nf4", s.dir / "small.gguf", o);
    REQUIRE(rest);
    CHECK(small->left_out().size() == 6);
    CHECK(std::ranges::count(*rest, true, &TensorReport::with_feedback) == 6 * 6 + 1);
    for (const std::string& name : small->left_out()) CHECK(name.find("ffn_down") != std::string::npos);
}

TEST_CASE("feedback of experts, latent heads and states") {
    const Scratch s;
    const auto tokens = some_tokens(64);
    for (const std::string_view name : {"qwen3_moe", "deepseek_v2", "qwen3_next", "gpt_oss"}) {
        CAPTURE(name);
        const fs::path folder = root / "tests/golden/models" / name;
        const auto model = open(folder);
        Measured measured(folder, tokens, 64);
        const auto meter = measured.meter(*model, "q4_0");
        ConvertOptions o;
        o.feedback = meter.get();
        const auto reports = quantize(*model, "q4_0", s.dir / "with.gguf", o);
        REQUIRE_MESSAGE(reports, (reports ? "" : reports.error().message()));
        Measured again(s.dir / "with.gguf", tokens, 64);
        Scorer scorer(*again.engine);
        const auto logits = scorer.logits(again.windows[0]);
        REQUIRE(logits);
        CHECK(std::ranges::all_of(*logits, [](float x) { return std::isfinite(x); }));
        // The layer that guesses ahead does not run with the text.
        const std::string guesses = cat("blk.", model->spec.layers.size(), ".");
        for (const TensorReport& r : *reports)
            if (has_search(r.to) && !r.name.starts_with(guesses) && r.name != "token_embd.weight") {
                CAPTURE(r.name);
                CHECK(r.with_feedback == (r.from != r.to));  // what keeps its type stays as it is
            }
    }
}
