// Conversion: equal logits through both containers, exact plans, recipes, importance, refusals.
// The bundled checkpoint and small models made here serve as sources.
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "ggml/base/mapped_file.h"
#include "ggml/cpu/cpu_backend.h"
#include "ggml/file/gguf_reader.h"
#include "src/eval/calibrate.h"
#include "src/eval/perplexity.h"
#include "src/model/vocab_file.h"
#include "src/quant/convert.h"
#include "tests/golden/single_sequence.h"

using namespace nibble;
namespace fs = std::filesystem;

namespace {

const fs::path root = NIBBLE_SOURCE_DIR, checkpoint = root / "models/fairytale";

struct Scratch {
    fs::path dir = fs::temp_directory_path() / cat("nibble-quant-", ::getpid());
    Scratch() { fs::create_directories(dir); }
    ~Scratch() { fs::remove_all(dir); }
    size_t files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(dir), {})); }
};

std::unique_ptr<OpenedModel> open(const fs::path& path) {
    auto file = TensorFile::open(path);
    REQUIRE_MESSAGE(file, (file ? "" : file.error().message()));
    auto model = open_model(std::move(*file));
    REQUIRE_MESSAGE(model, (model ? "" : model.error().message()));
    return std::move(*model);
}

Result<std::vector<TensorReport>> quantize(const OpenedModel& model, std::string_view type,
                                           const fs::path& to, ConvertOptions options = {}, int threads = 2) {
    const Vocab vocab = NIBBLE_TRY(read_vocab(model.file));
    const ConvertPlan plan = NIBBLE_TRY(plan_conversion(model, {NIBBLE_TRY(find_recipe(type)), true, {}}));
    ThreadPool pool(threads);
    return convert(model, vocab, plan, to, pool, options);
}

std::shared_ptr<Backend> cpu_backend() { return std::move(*CpuBackend::create()); }

std::vector<float> logits_of(const fs::path& path) {
    auto s = SingleSequence::load(path, Type::f32, cpu_backend());
    REQUIRE_MESSAGE(s, (s ? "" : s.error().message()));
    std::vector<Token> tokens;
    for (int i = 0; i < 60; ++i) tokens.push_back((i * 389 + 7) % 300);
    const auto logits = s->feed(tokens);
    REQUIRE(logits);
    return {logits->begin(), logits->end()};
}

PerplexityResult against_checkpoint(const fs::path& path, size_t windows) {
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

// A Hugging Face folder like the bundled one with other tensors: `make` writes config.json and safetensors.
void write_safetensors(const fs::path& path,
                       const std::vector<std::pair<std::string, std::vector<int64_t>>>& shapes,
                       std::mt19937& random, float poison = 0) {
    nlohmann::ordered_json header;
    std::string data;
    for (const auto& [name, shape] : shapes) {
        int64_t n = 1;
        for (const int64_t s : shape) n *= s;
        const size_t begin = data.size();
        std::normal_distribution<float> normal(0, 0.05f);
        for (int64_t i = 0; i < n; ++i) {
            float x = shape.size() == 1 ? 1 + normal(random) : normal(random);
            if (poison != 0 && i == 3 && name.find("up_proj") != std::string::npos) x = poison;
            data.append(reinterpret_cast<const char*>(&x), sizeof x);
        }
        header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << text << data;
}

// A llama with biases, an untied output, llama3 rope scaling and odd sizes.
fs::path odd_model(const fs::path& dir, int64_t width, float poison = 0) {
    fs::create_directories(dir);
    for (const char* f : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
        fs::copy_file(checkpoint / f, dir / f, fs::copy_options::overwrite_existing);
    const int64_t heads = 4, kv = 2, dim = 32, ff = width * 2;
    std::ofstream(dir / "config.json") << nlohmann::json{{"model_type", "llama"},
                                                         {"hidden_act", "silu"},
                                                         {"hidden_size", width},
                                                         {"intermediate_size", ff},
                                                         {"num_hidden_layers", 2},
                                                         {"num_attention_heads", heads},
                                                         {"num_key_value_heads", kv},
                                                         {"head_dim", dim},
                                                         {"max_position_embeddings", 128},
                                                         {"rms_norm_eps", 1e-5},
                                                         {"rope_theta", 500000.0},
                                                         {"vocab_size", 4096},
                                                         {"attention_bias", true},
                                                         {"tie_word_embeddings", false},
                                                         {"rope_scaling",
                                                          {{"rope_type", "llama3"},
                                                           {"factor", 8.0},
                                                           {"low_freq_factor", 1.0},
                                                           {"high_freq_factor", 4.0},
                                                           {"original_max_position_embeddings", 32}}}};
    std::vector<std::pair<std::string, std::vector<int64_t>>> t = {
        {"model.embed_tokens.weight", {4096, width}},
        {"model.norm.weight", {width}},
        {"lm_head.weight", {4096, width}}};
    for (const int l : {0, 1}) {
        const std::string p = cat("model.layers.", l, ".");
        const std::pair<std::string, std::vector<int64_t>> layer[] = {
            {"input_layernorm.weight", {width}},
            {"post_attention_layernorm.weight", {width}},
            {"self_attn.q_proj.weight", {heads * dim, width}},
            {"self_attn.k_proj.weight", {kv * dim, width}},
            {"self_attn.v_proj.weight", {kv * dim, width}},
            {"self_attn.o_proj.weight", {width, heads * dim}},
            {"self_attn.q_proj.bias", {heads * dim}},
            {"self_attn.k_proj.bias", {kv * dim}},
            {"self_attn.v_proj.bias", {kv * dim}},
            {"mlp.gate_proj.weight", {ff, width}},
            {"mlp.up_proj.weight", {ff, width}},
            {"mlp.down_proj.weight", {width, ff}}};
        for (const auto& [name, shape] : layer) t.emplace_back(p + name, shape);
    }
    std::mt19937 random(42);
    write_safetensors(dir / "model.safetensors", t, random, poison);
    return dir;
}

}  // namespace

TEST_CASE("a folder and the GGUF made from it give the same logits") {
    const Scratch s;
    const fs::path odd = odd_model(s.dir / "odd", 96);
    for (const fs::path& source : {checkpoint, odd}) {
        INFO(source.string());
        const auto expected = logits_of(source);
        REQUIRE(quantize(*open(source), "f32", s.dir / "f32.gguf"));
        const auto actual = logits_of(s.dir / "f32.gguf");
        REQUIRE(actual.size() == expected.size());
        // The rows of q and k are in another order, so sums over a head are too.
        double worst = 0;
        for (size_t i = 0; i < actual.size(); ++i)
            worst = std::max(worst, std::fabs(static_cast<double>(actual[i] - expected[i])));
        CHECK(worst < 2e-5);
    }
    // Nothing moves when a GGUF is the source.
    REQUIRE(quantize(*open(s.dir / "f32.gguf"), "f32", s.dir / "again.gguf"));
    CHECK(*read_text_file(s.dir / "f32.gguf") == *read_text_file(s.dir / "again.gguf"));
}

TEST_CASE("the bundled int8 file is what the converter makes, with any number of threads") {
    const Scratch s;
    const auto model = open(checkpoint);
    for (const int threads : {1, 3}) {
        REQUIRE(quantize(*model, "int8", s.dir / "int8.gguf", {}, threads));
        CHECK(*read_text_file(s.dir / "int8.gguf") == *read_text_file(root / "models/fairytale-int8.gguf"));
    }
}

TEST_CASE("plans are exact and every type that can be written can be run") {
    const Scratch s;
    const auto model = open(checkpoint);
    for (const std::string_view type : recipe_names()) {
        INFO(type);
        const auto plan = plan_conversion(*model, {*find_recipe(type), true, {}});
        REQUIRE(plan);
        REQUIRE(quantize(*model, type, s.dir / "t.gguf"));
        const auto file = GgufFile::open(s.dir / "t.gguf");
        REQUIRE(file);
        uint64_t bytes = 0;
        for (const TensorInfo& t : file->tensors.all()) bytes += t.data.size();
        CHECK(bytes == plan->bytes);
        for (const float x : logits_of(s.dir / "t.gguf")) REQUIRE(std::isfinite(x));
    }
    CHECK(!find_recipe("q9_x"));
}

TEST_CASE("rows that do not divide get a type of like size, said or refused") {
    const Scratch s;
    const auto model = open(odd_model(s.dir / "odd", 96));
    const auto plan = plan_conversion(*model, {*find_recipe("int4"), true, {}});
    REQUIRE(plan);
    CHECK(!plan->substitutions.empty());
    for (const TensorPlan& p : plan->tensors)
        if (p.source->n_dims > 1) CHECK(info(p.type).block_len == 32);
    const auto strict = plan_conversion(*model, {*find_recipe("int4"), false, {}});
    REQUIRE(!strict);
    CHECK(strict.error().what.find("96") != std::string::npos);
    REQUIRE(quantize(*model, "int4", s.dir / "int4.gguf"));
    CHECK(std::isfinite(logits_of(s.dir / "int4.gguf")[0]));
}

TEST_CASE("NaN and infinity are refused with the tensor's name and leave no file") {
    const Scratch s;
    for (const float poison : {NAN, INFINITY}) {
        const auto model = open(odd_model(s.dir / "bad", 96, poison));
        for (const std::string_view type : {"f32", "int8", "int4", "nf4"}) {
            const auto r = quantize(*model, type, s.dir / "out.gguf");
            REQUIRE(!r);
            CHECK(r.error().where.find("up_proj") != std::string::npos);
            CHECK(s.files() == 1);  // the source folder alone
        }
    }
}

TEST_CASE("importance of experts: each counts its own rows") {
    const Scratch s;
    const fs::path folder = root / "tests/golden/models/qwen3_moe";
    const auto backend = cpu_backend();
    Backend* const list[] = {backend.get()};
    EngineConfig config;
    config.runner.ctx = config.runner.batch_tokens = config.runner.max_outputs = 64;
    auto engine = Engine::load(folder, config, list);
    REQUIRE(engine);
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 64; ++i) tokens.push_back(3 + i * 7 % 90);
    const auto cut = cut_windows(tokens, 64, 64, {});
    Scorer scorer(*engine);
    ImportanceObserver observer;
    for (const Window& w : cut) REQUIRE(scorer.logits(w, &observer));
    Importance collected;
    REQUIRE(observer.finish(engine->runner().program(), collected).ok());
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

    // Different experts get different weights, and the weighted search changes the bytes.
    const auto weights = read->weights("blk.1.ffn_down_exps.weight", 64);
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
    const auto backend = cpu_backend();
    Backend* const list[] = {backend.get()};
    EngineConfig config;
    config.runner.ctx = config.runner.batch_tokens = config.runner.max_outputs = 16;
    auto engine = Engine::load(root / "tests/golden/models/deepseek_v2", config, list);
    REQUIRE(engine);
    const std::vector<int32_t> tokens = {3, 10, 17, 24, 31, 38, 45, 52, 59, 66, 73, 80, 87, 4, 11, 18};
    const auto cut = cut_windows(tokens, 16, 16, {});
    REQUIRE(cut.size() == 1);
    ImportanceObserver observer;
    REQUIRE(Scorer(*engine).logits(cut[0], &observer));
    Importance collected;
    REQUIRE(observer.finish(engine->runner().program(), collected).ok());
    for (const std::string_view part : {"attn_k_b", "attn_v_b"}) {
        const auto& e = collected.tensors.at(cat("blk.0.", part, ".weight"));
        REQUIRE(e.expert_counts.size() > 1);  // heads
        for (const float count : e.expert_counts) CHECK(count == 16);
        CHECK(std::ranges::all_of(e.sums, [](float x) { return x > 0; }));
    }
}

TEST_CASE("importance: collected, written, read, and used") {
    const Scratch s;
    const auto backend = cpu_backend();
    Backend* const list[] = {backend.get()};
    EngineConfig config;
    config.runner.ctx = config.runner.batch_tokens = config.runner.max_outputs = 512;
    auto engine = Engine::load(checkpoint, config, list);
    REQUIRE(engine);
    const auto tokens = engine->tokenizer().encode(*read_text_file(root / "tests/data/alice.txt"));
    auto cut = cut_windows(std::span(tokens).last(5000), 512, 512, {});
    Scorer scorer(*engine);
    ImportanceObserver observer;
    for (const Window& w : cut) REQUIRE(scorer.logits(w, &observer));
    Importance collected;
    collected.dataset = "alice";
    REQUIRE(observer.finish(engine->runner().program(), collected).ok());
    CHECK(collected.tensors.size() == 6 * 7 + 1);
    CHECK(collected.tensors.at("blk.2.attn_q.weight").count == static_cast<float>(cut.size() * 512));
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
    CHECK(!read->weights("blk.0.ffn_down.weight", 100));

    // The order that the table of the README shows: plain above searched above weighted, more bits below.
    const auto model = open(checkpoint);
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
