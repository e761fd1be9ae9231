// What models with DeepSeek's attention out of a latent and many small experts beside shared ones share.
// Included by deepseek2.cpp and mistral4.cpp.
#pragma once

#include <algorithm>
#include <cmath>

#include "ggml/base/cat.h"
#include "src/model/architecture.h"
#include "src/model/rope.h"

namespace nibble {

inline constexpr NamePair latent_names[] = {
    {"model.layers.{}.self_attn.q_a_proj", "blk.{}.attn_q_a"},
    {"model.layers.{}.self_attn.q_a_layernorm", "blk.{}.attn_q_a_norm"},
    {"model.layers.{}.self_attn.q_b_proj", "blk.{}.attn_q_b"},
    {"model.layers.{}.self_attn.kv_a_proj_with_mqa", "blk.{}.attn_kv_a_mqa"},
    {"model.layers.{}.self_attn.kv_a_layernorm", "blk.{}.attn_kv_a_norm"},
    {"model.layers.{}.self_attn.kv_b_proj", "blk.{}.attn_kv_b", Storage::latent},
};

// The columns of a head in full, and in GGUF those that the cache holds, under the older names of the former.
inline void latent_head_fields(Fields& f, Hyper& h) {
    if (f.is_writing()) {
        Hyper cached = h;
        cached.n_kv_heads = 1;
        cached.head_dim = h.latent_dim + h.rope_dim;
        cached.v_head_dim = h.latent_dim;
        standard_fields(f, cached);
    } else {
        standard_fields(f, h);
    }
    f.required("attention.kv_lora_rank", "kv_lora_rank", h.latent_dim);
    // Not needed here, but by other readers of the files that are written.
    if (!f.is_writing() || h.q_latent_dim > 0)
        f.optional("attention.q_lora_rank", "q_lora_rank", h.q_latent_dim);
    f.optional("attention.key_length_mla", "", h.head_dim);
    f.optional("attention.value_length_mla", "v_head_dim", h.v_head_dim);
    if (!f.from_hf()) return;
    uint32_t plain = 0;
    f.required("", "qk_nope_head_dim", plain);
    f.required("", "qk_rope_head_dim", h.rope_dim);
    if (plain > max_width || h.rope_dim > max_width)
        return f.fail({ErrorCode::corrupt, "qk_nope_head_dim", cat("has the impossible value ", plain), ""});
    h.head_dim = plain + h.rope_dim;
}

// The factor 0.1 of YaRN's logarithm is part of what GGUF states. There only the scores are scaled.
inline void latent_yarn_fields(Fields& f, Hyper& h) {
    RopeScaling& s = h.rope_scaling;
    if (s.type != "yarn") return;
    if (f.from_hf()) h.yarn_log_multiplier = 0.1f * s.mscale_all_dim;
    if (!f.from_hf() && !f.is_writing()) s.attention_factor = 1;
    if (f.is_writing() && s.attention_factor != 1)
        f.fail({ErrorCode::unsupported, "rope_scaling.mscale",
                "is not mscale_all_dim, which GGUF cannot state", ""});
    f.optional("rope.scaling.yarn_log_multiplier", "", h.yarn_log_multiplier);
}

// All but how experts are chosen.
inline void latent_fields(Fields& f, Hyper& h) {
    latent_head_fields(f, h);
    latent_yarn_fields(f, h);
    f.optional("attention.temperature_scale", "rope_parameters.llama_4_scaling_beta", h.query_growth);
    if (f.is_writing() && h.query_growth != 0)  // for readers that do not take the original context
        f.optional("attention.temperature_length", "", h.rope_scaling.original_context);
    expert_fields(f, h);
    if (!f.is_writing()) h.expert_norm = false;  // where nothing is stated
    f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
    f.optional("expert_weights_scale", "routed_scaling_factor", h.expert_scale);
    f.optional("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.optional("expert_shared_count", "n_shared_experts", h.n_experts_shared);
    dense_fields(f, h, "first_k_dense_replace");
    f.expect("hidden_act", {"silu"});
    f.expect("rope_interleave", {"true"});
    f.expect("quantization_config", {});
}

inline Result<ModelSpec> latent_spec(const Hyper& h, const TensorMap& tensors) {
    if (h.latent_dim == 0 || h.rope_dim >= h.head_dim)
        return Error{ErrorCode::corrupt, "kv_lora_rank",
                     cat("latent of ", h.latent_dim, ", ", h.rope_dim, " of ", h.head_dim,
                         " columns rotate: no latent attention"),
                     ""};
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::adjacent, tensors));
    const float factor = std::max(1.0f, h.rope_scaling.factor);
    const float mscale = h.yarn_log_multiplier * std::log(factor) + 1;
    LatentAttentionSpec a;
    a.n_heads = static_cast<int32_t>(h.n_heads);
    a.latent_dim = static_cast<int32_t>(h.latent_dim);
    a.rope_dim = static_cast<int32_t>(h.rope_dim);
    a.nope_dim = static_cast<int32_t>(h.head_dim - h.rope_dim);
    a.v_head_dim = static_cast<int32_t>(h.v_head_dim);
    a.scale = mscale * mscale / std::sqrt(static_cast<float>(h.head_dim));
    a.query_scale = NIBBLE_TRY(query_growth(h));
    for (LayerSpec& l : s.layers) l.mixer = a;
    set_experts(s, h, tensors);
    return s;
}

}  // namespace nibble
