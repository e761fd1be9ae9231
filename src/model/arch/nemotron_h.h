// What Nemotron-H with and without experts share: every layer is one block alone, a state space (Mamba-2),
// attention without positions or a feed-forward. Included by nemotron_h.cpp and nemotron_h_moe.cpp.
#pragma once

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "src/model/architecture.h"

namespace nibble {

inline constexpr NamePair nemotron_h_names[] = {
    {"model.embeddings", "token_embd"},
    {"model.norm_f", "output_norm"},
    {"model.layers.{}.norm", "blk.{}.attn_norm"},
    {"model.layers.{}.mixer.q_proj", "blk.{}.attn_q"},
    {"model.layers.{}.mixer.k_proj", "blk.{}.attn_k"},
    {"model.layers.{}.mixer.v_proj", "blk.{}.attn_v"},
    {"model.layers.{}.mixer.o_proj", "blk.{}.attn_output"},
    {"model.layers.{}.mixer.in_proj", "blk.{}.ssm_in"},
    {"model.layers.{}.mixer.conv1d", "blk.{}.ssm_conv1d", Storage::taps},
    {"model.layers.{}.mixer.dt_bias", "blk.{}.ssm_dt.bias"},
    {"model.layers.{}.mixer.A_log", "blk.{}.ssm_a", Storage::decay},
    {"model.layers.{}.mixer.D", "blk.{}.ssm_d", Storage::column},
    {"model.layers.{}.mixer.norm", "blk.{}.ssm_norm", Storage::groups},
    {"model.layers.{}.mixer.out_proj", "blk.{}.ssm_out"},
    {"model.layers.{}.mixer.up_proj", "blk.{}.ffn_up"},
    {"model.layers.{}.mixer.down_proj", "blk.{}.ffn_down"},
    // Experts
    {"model.layers.{}.mixer.gate", "blk.{}.ffn_gate_inp"},
    {"model.layers.{}.mixer.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    {"model.layers.{}.mixer.experts.{}.up_proj", "blk.{}.ffn_up_exps", Storage::expert},
    {"model.layers.{}.mixer.experts.{}.down_proj", "blk.{}.ffn_down_exps", Storage::expert},
    {"model.layers.{}.mixer.experts.up_proj", "blk.{}.ffn_up_exps"},
    {"model.layers.{}.mixer.experts.down_proj", "blk.{}.ffn_down_exps"},
    {"model.layers.{}.mixer.shared_experts.up_proj", "blk.{}.ffn_up_shexp"},
    {"model.layers.{}.mixer.shared_experts.down_proj", "blk.{}.ffn_down_shexp"},
    {"model.layers.{}.mixer.fc1_latent_proj", "blk.{}.ffn_latent_down"},
    {"model.layers.{}.mixer.fc2_latent_proj", "blk.{}.ffn_latent_up"},
    // Not implemented: layers that guess tokens further ahead
    {"mtp.*", ""},
};

// config.json calls both kinds by the same name.
inline bool nemotron_h_has_experts(const nlohmann::json& config) {
    const auto pattern = config.find("hybrid_override_pattern"), layers = config.find("layers_block_type");
    if (pattern != config.end() && pattern->is_string())
        return pattern->get_ref<const std::string&>().find('E') != std::string::npos;
    return layers != config.end() && std::ranges::find(*layers, "moe") != layers->end();
}

// What each layer is, by a letter or by a name, and from that what GGUF states of it: how many heads have
// keys and how wide it is as a feed-forward.
inline void nemotron_h_layer_fields(Fields& f, Hyper& h) {
    std::string pattern;
    std::vector<bool> carries, chooses;
    f.optional("", "hybrid_override_pattern", pattern);
    if (pattern.find_first_not_of("M*E-") != std::string::npos)
        f.fail(
            {ErrorCode::unsupported, "hybrid_override_pattern", "has other letters than M, *, E and -", ""});
    for (const char kind : pattern) {
        h.attends.push_back(kind == '*');
        carries.push_back(kind == 'M');
        chooses.push_back(kind == 'E');
    }
    const auto flags = [&](std::string_view on, std::string_view off, std::vector<bool>& value) {
        if (pattern.empty()) f.flags("", "layers_block_type", on, off, value);
    };
    flags("full_attention|attention", "linear_attention|mamba|moe|mlp", h.attends);
    flags("linear_attention|mamba", "full_attention|attention|moe|mlp", carries);
    flags("moe", "full_attention|attention|linear_attention|mamba|mlp", chooses);
    f.assume("num_hidden_layers", static_cast<uint32_t>(chooses.size()));
    uint32_t n_ff = 0, n_ff_expert = 0;
    f.optional("", "intermediate_size", n_ff);
    f.optional("", "moe_intermediate_size", n_ff_expert);
    for (size_t i = 0; i < chooses.size(); ++i)
        h.ff_lengths.push_back(h.attends[i] || carries[i] ? 0 : chooses[i] ? n_ff_expert : n_ff);
}

inline void nemotron_h_fields(Fields& f, Hyper& h) {
    if (f.from_hf()) nemotron_h_layer_fields(f, h), h.head_dim = 128;
    next_layer_fields(f, h);
    f.optional("", "attention_head_dim", h.head_dim);
    size_fields(f, h);
    if (f.from_hf()) list_kv_heads(h);
    // Files say it of layers that guess further ahead, too.
    const size_t all = size_t{h.n_layers} + h.n_next_layers;
    if (h.kv_heads.size() == all) h.kv_heads.resize(h.n_layers);
    if (h.ff_lengths.size() == all) h.ff_lengths.resize(h.n_layers);
    if (h.attends.size() == all) h.attends.resize(h.n_layers);
    state_fields(f, h, {"conv_kernel", "n_groups", "mamba_num_heads", "ssm_state_size", "mamba_head_dim"});
    if (!f.is_writing()) h.rotated.assign(std::min(h.n_layers, max_layers), false);
    f.expect("use_bias", {"false"});
    f.expect("mamba_proj_bias", {"false"});
    f.expect("mamba_hidden_act", {"silu"});
    f.expect("mlp_hidden_act", {"relu2"});
    f.expect("time_step_limit", {R"([0.0,{"__float__":"Infinity"}])"});  // none
    f.expect("quantization_config", {});
}

inline Result<ModelSpec> nemotron_h_spec(const Hyper& h, const TensorMap& tensors) {
    if (h.ff_lengths.empty())
        return Error{ErrorCode::corrupt, "feed_forward_length",
                     "is no list: what the layers are is not stated", ""};
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    const auto number = [](uint32_t n) { return static_cast<int32_t>(n); };
    Mamba2Spec m{number(h.delta_k_heads),
                 number(h.delta_v_heads),
                 number(h.delta_k_dim),
                 number(h.delta_v_dim),
                 number(h.n_taps),
                 0,
                 true};
    NIBBLE_TRY(set_states(s, h, m));
    set_dense_ffn(s, Activation::relu_squared, false);
    set_experts(s, h, tensors);
    for (size_t i = 0; i < s.layers.size(); ++i) {
        LayerSpec& l = s.layers[i];
        l.ffn_norm = "attn_norm";
        if (auto* moe = std::get_if<MoeFfnSpec>(&l.ffn))
            moe->act = Activation::relu_squared, moe->gated = false;
        if (h.ff_lengths[i] > 0)
            l.mixer = NoBlock{};
        else
            l.ffn = NoBlock{};
    }
    return s;
}

}  // namespace nibble
