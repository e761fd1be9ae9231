// What Gemma 4 and the models that guess for it (gemma4_assistant) share: five sliding layers to one, whose
// heads are wider and rotate in part; GGUF states the sizes of full layers under the usual keys and those of
// sliding ones apart.
// Included by gemma4.cpp and gemma4_assistant.cpp.
#pragma once

#include <algorithm>
#include <utility>

#include "ggml/base/cat.h"
#include "src/model/arch/gemma.h"

namespace nibble {

inline constexpr NamePair gemma4_names[] = {
    {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm"},
    {"model.layers.{}.pre_feedforward_layernorm", "blk.{}.ffn_norm"},
    {"model.layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm"},
    {"model.layers.{}.layer_scalar", "blk.{}.layer_output_scale.weight"},
    {"model.layers.{}.per_layer_input_gate", "blk.{}.inp_gate"},
    {"model.layers.{}.per_layer_projection", "blk.{}.proj"},
    {"model.layers.{}.post_per_layer_input_norm", "blk.{}.post_norm"},
    {"model.embed_tokens_per_layer", "per_layer_token_embd"},
    {"model.per_layer_model_projection", "per_layer_model_proj"},
    {"model.per_layer_projection_norm", "per_layer_proj_norm"},
    {"model.layers.{}.router.proj", "blk.{}.ffn_gate_inp"},
    {"model.layers.{}.router.scale", "blk.{}.ffn_gate_inp.scale"},
    {"model.layers.{}.router.per_expert_scale", "blk.{}.ffn_down_exps.scale"},
    {"model.layers.{}.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", Storage::gate_up},
    {"model.layers.{}.experts.down_proj", "blk.{}.ffn_down_exps.weight"},
    {"model.layers.{}.pre_feedforward_layernorm_2", "blk.{}.pre_ffw_norm_2"},
    {"model.layers.{}.post_feedforward_layernorm_1", "blk.{}.post_ffw_norm_1"},
    {"model.layers.{}.post_feedforward_layernorm_2", "blk.{}.post_ffw_norm_2"},
    {"model.vision_tower.*", ""},
    {"model.audio_tower.*", ""},
    {"model.embed_vision.*", ""},
    {"model.embed_audio.*", ""},
};

// config.json states the heads of sliding layers under the usual names, those of full layers under names of
// their own or, as transformers writes it, layer by layer.
inline std::string gemma4_full_layer_path(const Hyper& h, std::string_view own, std::string_view key) {
    const auto first = std::ranges::find(h.sliding, false);
    return cat(own, "|per_layer_config.", first - h.sliding.begin(), ".", key);
}

inline void gemma4_head_fields(Fields& f, Hyper& h) {
    if (f.from_hf()) {
        h.head_dim_local = h.head_dim;
        h.head_dim = 512;
        f.optional("", gemma4_full_layer_path(h, "global_head_dim", "head_dim"), h.head_dim);
        h.v_head_dim = h.rope_dim = h.head_dim;
        h.rotated_share = std::exchange(h.rope_share, 1.0f);
    }
    f.optional("attention.key_length_swa", "", h.head_dim_local);
    for (const std::string_view key : {"attention.value_length_swa", "rope.dimension_count_swa"}) {
        uint32_t same = h.head_dim_local;
        f.optional(key, "", same);
        if (same != h.head_dim_local)
            f.fail({ErrorCode::unsupported, std::string(key), "differs from attention.key_length_swa", ""});
    }
}

// Lists that config.json describes: of key-value heads, fewer in full layers that have no values, and of
// feed-forwards, twice as wide in layers without keys.
inline void gemma4_list_fields(Fields& f, Hyper& h) {
    bool without_values = false, double_wide = false;
    uint32_t full_heads = 0;
    f.optional("", "attention_k_eq_v", without_values);
    f.optional("", "use_double_wide_mlp", double_wide);
    f.optional("", gemma4_full_layer_path(h, "num_global_key_value_heads", "num_key_value_heads"),
               full_heads);
    if (!f.from_hf() || h.n_layers > max_layers || h.n_ff > max_width * 8) return;
    for (uint32_t i = 0; without_values && full_heads > 0 && i < h.n_layers; ++i)
        h.kv_heads.push_back(i < h.sliding.size() && h.sliding[i] ? h.n_kv_heads : full_heads);
    for (uint32_t i = 0; double_wide && i < h.n_layers; ++i)
        h.ff_lengths.push_back(i + h.n_shared_kv_layers < h.n_layers ? h.n_ff : 2 * h.n_ff);
}

inline void gemma4_fields(Fields& f, Hyper& h) {
    if (!f.is_writing()) h.norm_eps = 1e-6f, h.rope_theta = 1e6f, h.rope_theta_local = 1e4f, h.attn_scale = 1;
    if (f.from_hf() && !f.states("", "rope_parameters")) h.rope_share = 0.25f;
    if (!f.from_hf() && !f.is_writing()) h.logit_softcap = 30;  // which files leave out
    standard_fields(f, h);
    if (f.from_hf() && h.rope_scaling.type == "proportional") h.rope_scaling.type = "none";
    sliding_fields(f, h, f.is_writing() ? 0 : 6);                     // readers want the pattern stated
    if (f.from_hf() && !h.sliding.empty()) h.sliding.back() = false;  // whatever is stated
    gemma4_head_fields(f, h);
    f.optional("rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta", h.rope_theta_local);
    f.optional("attention.shared_kv_layers", "num_kv_shared_layers", h.n_shared_kv_layers);
    f.optional("embedding_length_per_layer_input", "hidden_size_per_layer_input", h.n_per_layer);
    f.optional("final_logit_softcapping", "final_logit_softcapping", h.logit_softcap);
    gemma4_list_fields(f, h);
    bool experts = f.is_writing() ? h.n_experts > 0 : !f.from_hf();
    f.optional("", "enable_moe_block", experts);
    if (experts) {
        expert_fields(f, h);
        f.optional("", "top_k_experts", h.n_experts_used);
        f.optional("expert_feed_forward_length", "moe_intermediate_size|expert_intermediate_size",
                   h.n_ff_expert);
    }
    f.expect("hidden_activation", {"gelu_pytorch_tanh"});
    f.expect("quantization_config", {});
    f.expect("use_bidirectional_attention", {"vision"});
    f.expect("rope_parameters.sliding_attention.rope_type", {"default"});
}

// Every layer with keys and values of its own.
inline Result<ModelSpec> gemma4_spec(const Hyper& h, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(gemma_spec(h, tensors, true));
    set_qk_norm(s, QkNorm::head);
    set_experts(s, h, tensors, true);
    s.n_per_layer = static_cast<int32_t>(h.n_per_layer);
    for (size_t i = 0; i < s.layers.size(); ++i) {
        if (auto* ffn = std::get_if<TwinFfnSpec>(&s.layers[i].ffn))
            ffn->experts.router_scale = 1 / std::sqrt(static_cast<float>(h.n_embd));
        s.layers[i].out_scale =
            NIBBLE_TRY(one_number(tensors, cat("blk.", i, ".layer_output_scale.weight"), 1));
        auto& a = std::get<AttentionSpec>(s.layers[i].mixer);
        const bool slides = i < h.sliding.size() && h.sliding[i];
        a.v_norm = true;
        a.keys_are_values = !slides && !tensors.contains(cat("blk.", i, ".attn_v.weight"));
    }
    return s;
}

}  // namespace nibble
