// Conversion: equal logits through both containers, exact plans, recipes, refusals.
// The bundled checkpoint and small models made here serve as sources.
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <set>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/file/gguf_reader.h"
#include "tests/exact_cpu.h"
#include "tests/quant/conversion.h"

using namespace nibble;
namespace fs = std::filesystem;

namespace {

// A Hugging Face folder like the bundled one with other tensors: `make` writes config.json and safetensors.
void write_safetensors(const fs::path& path,
                       const std::vector<std::pair<std::string, std::vector<int64_t>>>& shapes,
                       std::mt19937& random, float poison = 0, std::string_view poisoned = "up_proj") {
    nlohmann::ordered_json header;
    std::string data;
    for (const auto& [name, shape] : shapes) {
        int64_t n = 1;
        for (const int64_t s : shape) n *= s;
        const size_t begin = data.size();
        std::normal_distribution<float> normal(0, 0.05f);
        for (int64_t i = 0; i < n; ++i) {
            float x = shape.size() == 1 ? 1 + normal(random) : normal(random);
            if (poison != 0 && i == 3 && name.find(poisoned) != std::string::npos) x = poison;
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
fs::path odd_model(const fs::path& dir, int64_t width, float poison = 0,
                   std::string_view poisoned = "up_proj") {
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
    write_safetensors(dir / "model.safetensors", t, random, poison, poisoned);
    return dir;
}

}  // namespace

TEST_CASE("a folder and the GGUF made from it give the same logits") {
    const Scratch s;
    const fs::path odd = odd_model(s.dir / "odd", 96);
    for (const fs::path& source : {checkpoint, odd}) {
        INFO(source.string());
        const auto expected = logits_of(source, exact_cpu());
        REQUIRE(quantize(*open(source), "f32", s.dir / "f32.gguf"));
        const auto actual = logits_of(s.dir / "f32.gguf", exact_cpu());
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
        // What has its type already is not rounded again.
        REQUIRE(quantize(*open(s.dir / "t.gguf"), type, s.dir / "again.gguf"));
        CHECK(*read_text_file(s.dir / "t.gguf") == *read_text_file(s.dir / "again.gguf"));
    }
    CHECK(!find_recipe("q9_x"));
    CHECK(find_recipe("Q4_0"));
    CHECK(find_recipe("Q4_K_M").error().fix.find("use q4_k,") != std::string::npos);
}

TEST_CASE("a folder whose heads do not fit its matrices is refused before anything is written") {
    const Scratch s;
    const fs::path llama = root / "tests/golden/models/llama";
    for (const char* heads : {"60", "7"}) {
        const fs::path copy = s.dir / heads;
        fs::copy(llama, copy);
        std::string config = *read_text_file(llama / "config.json");
        for (const std::string field : {"\"num_attention_heads\": 4", "\"num_key_value_heads\": 2"}) {
            const size_t at = config.find(field);
            REQUIRE(at != std::string::npos);
            config.replace(at, field.size(), cat(field.substr(0, field.size() - 1), heads));
        }
        std::ofstream(copy / "config.json") << config;
        const auto model = open_model(std::move(*TensorFile::open(copy)));
        if (!model) continue;
        const auto plan = plan_conversion(**model, {*find_recipe("int8"), true, {}});
        REQUIRE(!plan);
        CHECK(plan.error().what.find("pairs of") != std::string::npos);
    }
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
    for (const float poison : {NAN, INFINITY})
        for (const std::string_view poisoned : {"up_proj", "q_proj.bias", "v_proj.bias"}) {
            const auto model = open(odd_model(s.dir / "bad", 96, poison, poisoned));
            for (const std::string_view type : {"f32", "int8", "int4", "nf4"}) {
                const auto r = quantize(*model, type, s.dir / "out.gguf");
                REQUIRE(!r);
                CHECK(r.error().where.find(poisoned) != std::string::npos);
                CHECK(s.files() == 1);  // the source folder alone
            }
        }
}

TEST_CASE("what f16 or bf16 would hold as infinity is refused with what holds it") {
    const Scratch s;
    const auto refused = [&](const OpenedModel& model, std::string_view type, std::string_view fix) {
        CAPTURE(type);
        const auto r = quantize(model, type, s.dir / "out.gguf");
        REQUIRE(!r);
        CHECK(r.error().where.find("up_proj") != std::string::npos);
        CHECK(r.error().fix.find(fix) != std::string::npos);
        CHECK(s.files() == 1);
    };
    const auto model = open(odd_model(s.dir / "large", 96, -65520.0f));
    refused(*model, "f16", "use bf16");
    for (const std::string_view type : {"bf16", "f32", "int8"}) {
        CAPTURE(type);
        REQUIRE(quantize(*model, type, s.dir / "out.gguf"));
        fs::remove(s.dir / "out.gguf");
    }
    refused(*open(odd_model(s.dir / "large", 96, 3.4e38f)), "bf16", "use f32");
    REQUIRE(quantize(*open(odd_model(s.dir / "large", 96, 65519.0f)), "f16", s.dir / "out.gguf"));
}

TEST_CASE("rows that no blocks fit stay bf16 where they are, and become f16 otherwise") {
    const Scratch s;
    const auto types_of = [](const OpenedModel& model) {
        const auto plan = plan_conversion(model, {*find_recipe("int4"), true, {}});
        REQUIRE(plan);
        std::set<Type> types;
        for (const TensorPlan& p : plan->tensors)
            if (p.is_matrix() && p.source.cols() == 100) types.insert(p.type);
        return types;
    };
    const auto model = open(odd_model(s.dir / "f32", 100));
    CHECK(types_of(*model) == std::set{Type::f16});
    REQUIRE(quantize(*model, "bf16", s.dir / "bf16.gguf"));
    CHECK(types_of(*open(s.dir / "bf16.gguf")) == std::set{Type::bf16});
}

TEST_CASE("a GGUF source's keys are kept, but for what they say of its own weights") {
    const Scratch s;
    REQUIRE(quantize(*open(checkpoint), "nf4", s.dir / "nf4.gguf"));
    const auto keys_of = [&](const char* file) {
        std::set<std::string> keys;
        const auto f = GgufFile::open(s.dir / file);
        REQUIRE(f);
        for (const auto& e : f->metadata.entries()) keys.insert(e.key);
        return keys;
    };
    const auto model = open(s.dir / "nf4.gguf");
    REQUIRE(keys_of("nf4.gguf").contains("nibble.nf4.codebook"));
    REQUIRE(quantize(*model, "int8", s.dir / "int8.gguf"));
    auto expected = keys_of("nf4.gguf");
    std::erase_if(expected, [](const std::string& key) { return key.starts_with("nibble.nf4."); });
    CHECK(keys_of("int8.gguf") == expected);
}

TEST_CASE("a folder's name is its last component, however the path is written") {
    const Scratch s;
    fs::copy(checkpoint, s.dir / "story");
    for (const char* path : {"story", "story/", "story/.", "story/../story"}) {
        CAPTURE(path);
        REQUIRE(quantize(*open(s.dir / path), "int8", s.dir / "out.gguf"));
        const auto file = GgufFile::open(s.dir / "out.gguf");
        REQUIRE(file);
        CHECK(file->metadata.str("general.name") == "story");
    }
}

TEST_CASE("a tokenizer of more tokens than the embedding has rows is refused before anything is written") {
    const Scratch s;
    const auto model = open(checkpoint);
    const auto plan = plan_conversion(*model, {*find_recipe("int8"), true, {}});
    REQUIRE(plan);
    Vocab vocab = *read_vocab(model->file);
    ThreadPool pool(1);
    vocab.tokens.resize(4097, "more");
    const auto r = convert(*model, vocab, *plan, s.dir / "out.gguf", pool);
    REQUIRE(!r);
    CHECK(r.error().what == "the tokenizer has 4097 tokens, the embedding 4096 rows");
    CHECK(s.files() == 0);
}
