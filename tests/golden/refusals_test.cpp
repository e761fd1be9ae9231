// What an architecture does not implement is refused by the name of the field, and what it leaves out is
// said. The golden checkpoints with one thing changed in config.json.
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "ggml/base/mapped_file.h"
#include "ggml/cpu/cpu_backend.h"
#include "src/model/vocab_file.h"
#include "src/quant/convert.h"
#include "tests/golden/single_sequence.h"

using namespace nibble;
namespace fs = std::filesystem;

namespace {

const fs::path models = fs::path(NIBBLE_SOURCE_DIR) / "tests/golden/models";

// A copy of a golden checkpoint, removed at the end.
struct Copy {
    fs::path dir = fs::temp_directory_path() / cat("nibble-refusals-", ::getpid());
    explicit Copy(std::string_view name) {
        fs::remove_all(dir);
        fs::copy(models / name, dir);
    }
    ~Copy() { fs::remove_all(dir); }

    void change(const std::string& pointer, const nlohmann::json& value) const {
        auto j = nlohmann::json::parse(*read_text_file(dir / "config.json"));
        j[nlohmann::json::json_pointer(pointer)] = value;
        std::ofstream(dir / "config.json") << j;
    }
};

Result<std::unique_ptr<OpenedModel>> open(const fs::path& path) {
    return open_model(NIBBLE_TRY(TensorFile::open(path)));
}

Result<std::vector<TensorReport>> to_gguf(const OpenedModel& model, const fs::path& path) {
    const Vocab vocab = NIBBLE_TRY(read_vocab(model.file));
    const ConvertPlan plan = NIBBLE_TRY(plan_conversion(model, {NIBBLE_TRY(find_recipe("f16")), true, {}}));
    ThreadPool pool(1);
    return convert(model, vocab, plan, path, pool);
}

}  // namespace

TEST_CASE("a feature that is not implemented is refused by the name of its field") {
    using nlohmann::json;
    struct Change {
        std::string_view model;
        std::string pointer;
        json value;
        std::string_view says;
    };
    const Change changes[] = {
        {"llama", "/hidden_act", "gelu", "hidden_act"},
        {"llama", "/rope_parameters/rope_type", "ntk", "ntk"},
        {"llama", "/rope_parameters/partial_rotary_factor", -1, "partial_rotary_factor"},
        {"llama", "/quantization_config", json::object({{"bits", 4}}), "quantization_config"},
        {"llama", "/model_type", "lama", "lama"},
        {"qwen2", "/layer_types", json::array({"full_attention", "linear_attention"}), "layer_types"},
        {"qwen2", "/layer_types", json::array({"full_attention"}), "layers"},
        {"qwen3", "/hidden_act", "gelu", "hidden_act"},
        {"phi3", "/rope_scaling/long_factor", json::array({1, 2}), "longrope"},
        {"phi3", "/rope_scaling/long_factor", json::array({1, "x"}), "long_factor"},
        {"granite", "/logits_scaling", 0, "logits_scaling"},
        {"gemma2", "/hidden_activation", "silu", "hidden_activation"},
        {"gemma3", "/use_bidirectional_attention", true, "use_bidirectional_attention"},
        {"gemma3", "/rope_parameters/sliding_attention/rope_type", "yarn", "sliding_attention"},
        {"gpt2", "/scale_attn_by_inverse_layer_idx", true, "scale_attn_by_inverse_layer_idx"},
        {"gpt2", "/activation_function", "relu", "activation_function"},
        {"stablelm", "/qk_layernorm", true, "qk_layernorm"},
        {"cohere", "/use_qk_norm", true, "use_qk_norm"},
        {"olmoe", "/clip_qkv", 8.0, "clip_qkv"},
        {"qwen3_moe", "/num_experts_per_tok", 9, "experts used"},
        {"qwen3_moe", "/num_experts_per_tok", 0, "experts used"},
        {"mixtral", "/num_local_experts", 100000, "number of experts"},
        {"gpt_oss", "/swiglu_alpha", 1.5, "swiglu_alpha"},
        {"ministral3", "/text_config/model_type", "pixtral", "pixtral"},
        {"ministral3", "/text_config/rope_parameters/original_max_position_embeddings", 0,
         "original context"},
        {"glm4_moe", "/n_group", 0, "expert groups"},
        {"exaone4", "/layer_types", json::array({"full_attention", "chunked", "a", "b"}), "layer_types"},
        {"cohere2", "/use_qk_norm", true, "use_qk_norm"},
        {"ernie4_5", "/hidden_act", "gelu", "hidden_act"},
        {"apertus", "/hidden_act", "silu", "hidden_act"},
        {"apertus", "/post_norm", true, "post_norm"},
        {"hunyuan_v1_dense", "/use_qk_norm", false, "use_qk_norm"},
        {"hunyuan_v1_dense", "/rope_scaling/alpha", nullptr, "dynamic"},
        {"hunyuan_v1_dense", "/head_dim", 2, "head_dim"},
        {"hunyuan_v1_moe", "/moe_topk/1", 2, "moe_topk"},
        {"hunyuan_v1_moe", "/norm_topk_prob", false, "norm_topk_prob"},
        {"dots1", "/scoring_func", "softmax", "scoring_func"},
        {"minimax_m2", "/attn_type_list/1", 0, "attn_type_list"},
        {"minimax_m2", "/qk_norm_type", "per_head", "qk_norm_type"},
        {"minimax_m2", "/scoring_func", "softmax", "scoring_func"},
        {"minimax_m2", "/rotary_dim", 26, "rope dimension"},
        {"mistral4", "/text_config/n_group", 2, "n_group"},
        {"ernie4_5_moe", "/moe_layer_interval", 2, "moe_layer_interval"},
        {"seed_oss", "/rope_scaling", json::object({{"rope_type", "dynamic"}, {"factor", 2}}), "dynamic"},
        {"deepseek_v2", "/topk_method", "noaux_tc", "topk_method"},
        {"deepseek_v2", "/norm_topk_prob", true, "norm_topk_prob"},
        {"deepseek_v2", "/kv_lora_rank", nullptr, "kv_lora_rank"},
        {"deepseek_v2", "/qk_nope_head_dim", 0, "no keys of 0"},
        {"deepseek_v3", "/topk_method", "greedy", "topk_method"},
        {"deepseek_v3", "/scoring_func", "softmax", "scoring_func"},
        {"deepseek_v3", "/rope_interleave", false, "rope_interleave"},
        {"deepseek_v3", "/n_group", nullptr, "n_group"},
        {"deepseek_v3", "/topk_group", 5, "groups used"},
        {"deepseek_v3", "/quantization_config", json::object({{"quant_method", "fp8"}}),
         "quantization_config"},
        {"gpt_oss", "/quantization_config/quant_method", "gptq", "quantization_config"},
        {"qwen3_5", "/text_config/attn_output_gate", false, "attn_output_gate"},
        {"qwen3_5", "/text_config/hidden_act", "gelu", "hidden_act"},
        {"qwen3_5", "/text_config/linear_num_key_heads", 4, "key heads"},
        {"qwen3_5", "/text_config/linear_num_key_heads", 0, "key heads"},
        {"qwen3_5", "/text_config/linear_num_value_heads", 0, "value heads"},
        {"qwen3_5", "/text_config/linear_num_value_heads", 4000000000, "value heads"},
        {"qwen3_5", "/text_config/linear_num_value_heads", 8, "value heads"},
        {"qwen3_5", "/text_config/linear_key_head_dim", 100000, "linear attention"},
        {"qwen3_5", "/text_config/linear_conv_kernel_dim", 9, "convolution"},
        {"qwen3_5", "/text_config/linear_conv_kernel_dim", nullptr, "linear_conv_kernel_dim"},
        {"qwen3_5", "/text_config/layer_types", json::array({"full_attention"}), "layers"},
        {"qwen3_5", "/text_config/layer_types",
         json::array({"linear_attention", "linear_attention", "sliding", "linear_attention"}), "layer_types"},
        {"qwen3_5_moe", "/moe_intermediate_size", nullptr, "moe_intermediate_size"},
        {"lfm2", "/conv_L_cache", 1, "convolution"},
        {"lfm2", "/block_ffn_dim_multiplier", 1e30, "feed-forward length"},
        {"lfm2", "/block_multiple_of", 0, "feed-forward length"},
        {"lfm2", "/layer_types", json::array({"conv", "full_attention", "mamba"}), "layer_types"},
        {"lfm2_moe", "/norm_topk_prob", false, "norm_topk_prob"},
        {"lfm3", "/conv_L_cache", 9, "convolution"},
        {"lfm3", "/layer_types/0", "mamba", "layer_types"},
        {"lfm3", "/sliding_window", nullptr, "sliding_window"},
        {"mellum", "/rope_parameters/sliding_attention/rope_type", "yarn", "sliding_attention"},
        {"muse_glimmer", "/text_config/layer_rope_theta/0", 5000, "layer_rope_theta"},
        {"muse_glimmer", "/text_config/post_norm_eps", 1e-6, "post_norm_eps"},
        {"muse_glimmer", "/text_config/output_multiplier", nullptr, "output_multiplier"},
        {"granite_swa", "/layer_rope_theta/0", 4000, "several bases"},
        {"arcee", "/hidden_act", "silu", "hidden_act"},
        {"laguna", "/num_attention_heads_per_layer/1", 3, "kv heads"},
        {"laguna", "/num_attention_heads_per_layer/1", 0, "attention heads"},
        {"laguna", "/num_attention_heads_per_layer", json::array({4, 4}), "stated size"},
        {"laguna", "/moe_router_logit_softcapping", 5.0, "softcapping"},
        {"laguna", "/rope_parameters/sliding_attention/partial_rotary_factor", 0.5, "partial_rotary_factor"},
        {"afmoe", "/mup_enabled", false, "mup_enabled"},
        {"cohere2_moe", "/shared_expert_combination_strategy", "sum", "shared_expert_combination_strategy"},
        {"cohere2_moe", "/expert_selection_fn", "sparsemax", "expert_selection_fn"},
        {"cohere2_moe", "/prefix_dense_sliding_window_pattern", 4, "prefix_dense"},
        {"muse_glimmer/assistant", "/block_size", 1, "rows of a block"},
        {"muse_glimmer/assistant", "/block_size", 100000, "rows of a block"},
        {"muse_glimmer/assistant", "/mask_token_id", 4000000000, "vocabulary size"},
        {"muse_glimmer/assistant", "/target_layer_ids", json::array(), "target_layers"},
        {"qwen3_tales/assistant", "/dflash_config/target_layer_ids", json::array({-1, 1}),
         "target_layer_ids"},
        {"qwen3_tales/assistant", "/dflash_config/mask_token_id", nullptr, "mask_token_id"},
        {"qwen3_vl", "/text_config/hidden_act", "gelu", "hidden_act"},
        {"qwen2_5_vl", "/rope_scaling/type", "dynamic", "dynamic"},
        {"granitemoehybrid", "/mamba_n_groups", 2, "mamba_n_groups"},
        {"granitemoehybrid", "/mamba_proj_bias", true, "mamba_proj_bias"},
        {"granitemoehybrid", "/time_step_limit/1", 0.1, "time_step_limit"},
        {"granitemoehybrid", "/mamba_n_heads", 0, "of no size"},
        {"granitemoehybrid", "/mamba_d_state", 4000000000, "linear attention"},
        {"granitemoehybrid", "/mamba_expand", 4000000000, "of no size"},
        {"granitemoehybrid", "/layer_types/1", "linear", "layer_types"},
        {"qwen3_next", "/linear_key_head_dim", 24, "key heads"},
        {"qwen3_next", "/linear_value_head_dim", 0, "value"},
        {"qwen3_next", "/linear_num_key_heads", 3, "key heads"},
        {"qwen3_next", "/hidden_act", "gelu", "hidden_act"},
        {"nemotron_h", "/hybrid_override_pattern", "M-X*-", "hybrid_override_pattern"},
        {"nemotron_h", "/use_bias", true, "use_bias"},
        {"nemotron_h", "/mlp_hidden_act", "silu", "mlp_hidden_act"},
        {"nemotron_h", "/n_groups", 4, "key heads"},
        {"nemotron_h", "/layers_block_type", 5, "is no list"},
        {"nemotron_h", "/layers_block_type/1", "conv", "layers_block_type"},
        {"nemotron_h", "/num_hidden_layers", 4, "stated"},
        {"nemotron_h", "/intermediate_size", 0, "feed-forward length"},
        {"nemotron_h_latent", "/moe_latent_size", 4000000000, "latent dimension"},
        {"gemma4", "/use_bidirectional_attention", "all", "use_bidirectional_attention"},
        {"gemma4", "/num_kv_shared_layers", 6, "without keys"},
        {"gemma4", "/num_kv_shared_layers", 5, "no keys to attend to"},
        {"gemma4", "/hidden_size_per_layer_input", 4000000000, "of a layer"},
        {"gemma4", "/rope_parameters/full_attention/partial_rotary_factor", 0, "rotate"},
        {"gemma4", "/rope_parameters/full_attention/rope_type", "dynamic", "dynamic"},
        {"gemma4_dense", "/text_config/num_global_key_value_heads", 3, "kv heads"},
    };
    for (const Change& c : changes) {
        CAPTURE(c.model);
        CAPTURE(c.pointer);
        const Copy copy(c.model);
        copy.change(c.pointer, c.value);
        const auto model = open(copy.dir);
        REQUIRE(!model);
        INFO(model.error().message());
        CHECK(model.error().message().find(c.says) != std::string::npos);
        CHECK(model.error().message().starts_with(copy.dir.string()));
    }
}

TEST_CASE("values that are missing, and keys that do not fit who attends to them, are refused") {
    struct Change {
        std::string_view model, without;  // tensor
        std::vector<int32_t> kv_heads;
        std::string_view says;
    };
    const Change changes[] = {{"llama", "blk.1.attn_v.weight", {}, "blk.1.attn_v.weight"},
                              {"gemma4", "blk.0.attn_v.weight", {}, "blk.0.attn_v.weight"},
                              {"gemma4", "", {2, 2, 2, 4, 4, 4}, "other heads"},
                              {"gemma4", "", {2, 2, 2, 1, 1, 1}, "other heads"},
                              {"gemma4", "", {2, 2}, "stated size"},
                              {"gemma4", "", {0, 2, 2, 2, 2, 2}, ""}};
    const auto backend = CpuBackend::create({1, ""});
    REQUIRE(backend);
    Backend* const list[] = {backend->get()};
    for (const Change& c : changes) {
        CAPTURE(c.model);
        CAPTURE(c.says);
        const Copy copy(c.model);
        const auto model = open(copy.dir);
        REQUIRE(model);
        const fs::path path = copy.dir / "whole.gguf";
        REQUIRE(to_gguf(**model, path));
        const auto whole = TensorFile::open(path);
        REQUIRE(whole);
        Metadata m = whole->metadata();
        if (!c.kv_heads.empty()) m.set(cat(c.model, ".attention.head_count_kv"), MetaArray(c.kv_heads));
        std::vector<TensorInfo> tensors;
        for (const TensorInfo& t : whole->tensors())
            if (t.name != c.without) tensors.push_back(t);
        auto file = TensorFile::in_memory(std::move(m), std::move(tensors), nullptr, false);
        REQUIRE(file);
        const auto refused = ModelRunner::forecast(std::move(*file), {}, list);
        REQUIRE(!refused);
        INFO(refused.error().message());
        CHECK(refused.error().message().find(c.says) != std::string::npos);
    }
}

TEST_CASE("fields that published files leave out have the defaults of their class") {
    {
        const Copy gemma("gemma3_vision");
        auto j = nlohmann::json::parse(*read_text_file(gemma.dir / "config.json"));
        (j.contains("text_config") ? j["text_config"] : j).erase("rms_norm_eps");
        std::ofstream(gemma.dir / "config.json") << j;
        const auto opened = open(gemma.dir);
        REQUIRE_MESSAGE(opened, (opened ? "" : opened.error().message()));
        CHECK((*opened)->spec.norm_eps == 1e-6f);
    }
    {
        const Copy llama("llama");
        llama.change("/pretraining_tp", 2);
        CHECK(open(llama.dir));
    }
    const Copy qwen("qwen2");
    REQUIRE(open(qwen.dir));
    CHECK((*open(qwen.dir))->spec.kv_groups.size() == 2);
    qwen.change("/use_sliding_window", nullptr);
    const auto whole = open(qwen.dir);
    REQUIRE(whole);
    REQUIRE((*whole)->spec.kv_groups.size() == 1);
    CHECK((*whole)->spec.kv_groups[0].window == 0);
}

TEST_CASE("a GGUF file states what YaRN's own factor is multiplied by, not the whole") {
    const Copy copy("olmo3");
    const fs::path path = copy.dir / "yarn.gguf";
    for (const float whole : {1.13862944f, 1.5f}) {  // 1.1386 = 1 + 0.1 ln 4
        INFO(whole);
        copy.change("/rope_parameters/full_attention/attention_factor", whole);
        const auto folder = open(copy.dir);
        REQUIRE(folder);
        CHECK((*folder)->spec.ropes[0].magnitude == doctest::Approx(whole));
        REQUIRE(to_gguf(**folder, path));
        const auto file = open(path);
        REQUIRE(file);
        CHECK((*file)->spec.ropes[0].magnitude == doctest::Approx(whole));
        const auto stated = (*file)->file.metadata().get_or<float>("olmo2.rope.scaling.attn_factor", 1.0f);
        REQUIRE(stated);
        CHECK(*stated == doctest::Approx(whole / 1.13862944));
    }
}

TEST_CASE("experts that the file does not hold are refused by the tensor's name") {
    const Copy copy("mixtral");
    copy.change("/num_local_experts", 6);
    const auto more = SingleSequence::load(copy.dir, Type::f32);
    REQUIRE(!more);
    CHECK(more.error().message().find("ffn_gate_inp") != std::string::npos);

    // One expert's matrix under a number that leaves a gap.
    auto bytes = *read_text_file(copy.dir / "model.safetensors");
    const std::string name = "layers.1.block_sparse_moe.experts.4.w2",
                      gap = "layers.1.block_sparse_moe.experts.9.w2";
    const size_t at = bytes.find(name);
    REQUIRE(at != std::string::npos);
    bytes.replace(at, name.size(), gap);
    std::ofstream(copy.dir / "model.safetensors", std::ios::binary) << bytes;
    const auto lacking = open(copy.dir);
    REQUIRE(!lacking);
    CHECK(lacking.error().message().find("lacks expert 4") != std::string::npos);

    // A number for which there would have to be more tensors than there are.
    const std::string near = "layers.0.block_sparse_moe.experts.0.w2.weight",
                      far = "layers.0.block_sparse_moe.experts.00060000.w2";
    bytes = *read_text_file(copy.dir / "model.safetensors");
    REQUIRE(bytes.find(near) != std::string::npos);
    bytes.replace(bytes.find(near), near.size(), far);
    std::ofstream(copy.dir / "model.safetensors", std::ios::binary) << bytes;
    const auto absent = open(copy.dir);
    REQUIRE(!absent);
    CHECK(absent.error().message().find("is of expert 60000") != std::string::npos);
}

TEST_CASE("MXFP4 codes without their scales, and scales without codes, are refused by name") {
    const Copy copy("gpt_oss");
    const auto bytes = *read_text_file(copy.dir / "model.safetensors");
    const std::string name = "layers.1.mlp.experts.down_proj_scales";
    const size_t at = bytes.find(name);
    REQUIRE(at != std::string::npos);
    auto changed = bytes;
    changed.replace(at, name.size(), "layers.9.mlp.experts.down_proj_scales");
    std::ofstream(copy.dir / "model.safetensors", std::ios::binary) << changed;
    const auto stray = open(copy.dir);
    REQUIRE(!stray);
    CHECK(stray.error().message().find("layers.9.mlp.experts.down_proj_scales") != std::string::npos);
    // Of another shape: rows and blocks exchanged.
    const std::string shape = "[5,64,2]", other = "[5,2,64]";
    changed = bytes;
    const size_t where = changed.find(shape, changed.find(name));
    REQUIRE(where != std::string::npos);
    changed.replace(where, shape.size(), other);
    std::ofstream(copy.dir / "model.safetensors", std::ios::binary) << changed;
    const auto unfit = open(copy.dir);
    REQUIRE(!unfit);
    CHECK(unfit.error().message().find("no scales") != std::string::npos);
}

TEST_CASE("a missing or surplus tensor is refused by its name, whatever the hyperparameters say") {
    const Copy copy("qwen3");
    copy.change("/num_hidden_layers", 4);
    const auto missing = SingleSequence::load(copy.dir, Type::f32);
    REQUIRE(!missing);
    CHECK(missing.error().message().find("blk.3.") != std::string::npos);
    copy.change("/num_hidden_layers", 2);
    const auto surplus = SingleSequence::load(copy.dir, Type::f32);
    REQUIRE(!surplus);
    CHECK(surplus.error().message().find("blk.2.") != std::string::npos);
}

TEST_CASE("layers that predict tokens further ahead are left out, and this is said") {
    const Copy copy("deepseek_v3");
    copy.change("/num_hidden_layers", 2);  // so that what predicts is the second of two, which is not used
    copy.change("/num_nextn_predict_layers", 2);
    const auto model = open(copy.dir);
    REQUIRE_MESSAGE(model, (model ? "" : model.error().message()));
    REQUIRE((*model)->notes.size() == 1);
    CHECK((*model)->notes[0].find("further ahead") != std::string::npos);
    CHECK(SingleSequence::load(copy.dir, Type::f32));
}

TEST_CASE("latent attention: groups that do not divide, a cache type that cannot hold the parts") {
    const Copy copy("deepseek_v3");
    const auto odd = SingleSequence::load(copy.dir, Type::q8_0);
    REQUIRE(!odd);
    CHECK(odd.error().message().find("whole number of blocks") != std::string::npos);
    copy.change("/n_group", 3);
    const auto groups = SingleSequence::load(copy.dir, Type::f32);
    REQUIRE(!groups);
    CHECK(groups.error().message().find("3 groups") != std::string::npos);
    copy.change("/n_group", 4);
    copy.change("/rope_scaling/mscale", 0.5);
    const auto model = open(copy.dir);
    REQUIRE(model);
    const auto report = to_gguf(**model, copy.dir / "out.gguf");
    REQUIRE(!report);
    CHECK(report.error().message().find("mscale") != std::string::npos);
}

TEST_CASE("layers without rotation in a pattern that GGUF cannot state run, but are not converted") {
    const Copy copy("smollm3");
    copy.change("/no_rope_layers", {1, 0, 1, 0});
    const auto model = open(copy.dir);
    REQUIRE_MESSAGE(model, (model ? "" : model.error().message()));
    const auto rope = [&](size_t i) { return std::get<AttentionSpec>((*model)->spec.layers[i].mixer).rope; };
    CHECK(rope(0) == 0);
    CHECK(rope(1) == -1);
    const auto report = to_gguf(**model, copy.dir / "out.gguf");
    REQUIRE(!report);
    CHECK(report.error().message().find("no_rope_layers") != std::string::npos);
}

TEST_CASE("a model with learned positions has no more than those") {
    const auto backend = std::make_shared<ReferenceBackend>();
    CHECK(SingleSequence::load(models / "gpt2", Type::f32, backend, 128));
    const auto longer = SingleSequence::load(models / "gpt2", Type::f32, backend, 129);
    REQUIRE(!longer);
    CHECK(longer.error().message().find("128 positions") != std::string::npos);
}

TEST_CASE("the part of a checkpoint that is not used is said") {
    const auto model = open(models / "gemma3_vision");
    REQUIRE_MESSAGE(model, (model ? "" : model.error().message()));
    REQUIRE((*model)->notes.size() == 2);
    CHECK((*model)->notes[0].find("multi_modal_projector") != std::string::npos);
    CHECK((*model)->notes[1].find("vision_tower") != std::string::npos);
    CHECK(open(models / "gemma3").value().get()->notes.empty());
}

TEST_CASE("GGUF gets a token for every row of the embedding; reading drops those without a text") {
    const Copy copy("llama");
    const auto model = open(copy.dir);
    REQUIRE(model);
    const size_t n = read_vocab((*model)->file)->tokens.size();
    REQUIRE(to_gguf(**model, copy.dir / "out.gguf").ok());
    const auto file = TensorFile::open(copy.dir / "out.gguf");
    REQUIRE(file);
    CHECK(file->metadata().strings("tokenizer.ggml.tokens")->size() == 200);
    CHECK(file->metadata().ints("tokenizer.ggml.token_type")->size() == 200);
    CHECK(n < 200);
    CHECK(read_vocab(*file)->tokens.size() == n);
}
