// What Qwen 3.5 with and without experts share: three layers of linear attention (gated delta rule) to one of
// gated softmax attention, norms stored less one.
// Included by qwen35.cpp and qwen35moe.cpp.
#pragma once

#include "src/model/architecture.h"

namespace nibble {

inline constexpr NamePair qwen35_names[] = {
    {"model.norm", "output_norm", Storage::offset_one},
    {"model.layers.{}.input_layernorm", "blk.{}.attn_norm", Storage::offset_one},
    {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm", Storage::offset_one},
    {"model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm", Storage::offset_one},
    {"model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm", Storage::offset_one},
    {"model.layers.{}.linear_attn.in_proj_qkv", "blk.{}.attn_qkv", Storage::qkv_rows},
    {"model.layers.{}.linear_attn.in_proj_z", "blk.{}.attn_gate", Storage::value_rows},
    {"model.layers.{}.linear_attn.in_proj_b", "blk.{}.ssm_beta", Storage::value_rows},
    {"model.layers.{}.linear_attn.in_proj_a", "blk.{}.ssm_alpha", Storage::value_rows},
    {"model.layers.{}.linear_attn.conv1d", "blk.{}.ssm_conv1d", Storage::value_taps},
    {"model.layers.{}.linear_attn.A_log", "blk.{}.ssm_a", Storage::value_decay},
    {"model.layers.{}.linear_attn.dt_bias", "blk.{}.ssm_dt.bias", Storage::value_rows},
    {"model.layers.{}.linear_attn.norm", "blk.{}.ssm_norm"},
    {"model.layers.{}.linear_attn.out_proj", "blk.{}.ssm_out", Storage::value_columns},
    // Experts
    {"model.layers.{}.mlp.shared_expert_gate", "blk.{}.ffn_gate_inp_shexp"},
    {"model.layers.{}.mlp.shared_expert.gate_proj", "blk.{}.ffn_gate_shexp"},
    {"model.layers.{}.mlp.shared_expert.up_proj", "blk.{}.ffn_up_shexp"},
    {"model.layers.{}.mlp.shared_expert.down_proj", "blk.{}.ffn_down_shexp"},
    // The layer that guesses further ahead
    {"model.layers.{}.enorm", "blk.{}.nextn.enorm", Storage::offset_one},
    {"model.layers.{}.hnorm", "blk.{}.nextn.hnorm", Storage::offset_one},
    {"model.layers.{}.shared_head.norm", "blk.{}.nextn.shared_head_norm", Storage::offset_one},
    // Not implemented: images
    {"visual.*", ""},
    {"model.visual.*", ""},
};

inline void delta_fields(Fields& f, Hyper& h) {
    state_fields(f, h,
                 {"linear_conv_kernel_dim", "linear_num_key_heads", "linear_num_value_heads",
                  "linear_key_head_dim", "linear_value_head_dim"});
}

inline void qwen35_fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_share = 0.25f;
    next_layer_fields(f, h);
    standard_fields(f, h);
    delta_fields(f, h);
    section_fields(f, h);
    f.expect("hidden_act", {"silu"});
    f.expect("attn_output_gate", {"true"});
    f.expect("quantization_config", {});
    attending_fields(f, h, 4);
}

// `tiled`: of the order of value heads.
inline Result<ModelSpec> qwen35_spec(const Hyper& h, const TensorMap& tensors, bool tiled = true) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    for (LayerSpec& l : s.layers) {
        std::get<AttentionSpec>(l.mixer).gated = true;
        l.ffn_norm = "post_attention_norm";
    }
    const auto number = [](uint32_t n) { return static_cast<int32_t>(n); };
    NIBBLE_TRY(
        set_states(s, h,
                   DeltaNetSpec{number(h.delta_k_heads), number(h.delta_v_heads), number(h.delta_k_dim),
                                number(h.delta_v_dim), number(h.n_taps), tiled, 0}));
    return s;
}

}  // namespace nibble
