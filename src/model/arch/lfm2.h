// What LFM2 with and without experts and LFM3 share: names, and layers of short convolutions between those
// that attend. Included by lfm2.cpp, lfm2moe.cpp and lfm3.cpp.
#pragma once

#include <algorithm>

#include "src/model/architecture.h"

namespace nibble {

inline constexpr NamePair lfm2_names[] = {
    {"model.embedding_norm", "token_embd_norm"},
    {"model.layers.{}.operator_norm", "blk.{}.attn_norm"},
    {"model.layers.{}.ffn_norm", "blk.{}.ffn_norm"},
    {"model.layers.{}.self_attn.out_proj", "blk.{}.attn_output"},
    {"model.layers.{}.self_attn.q_layernorm", "blk.{}.attn_q_norm"},
    {"model.layers.{}.self_attn.k_layernorm", "blk.{}.attn_k_norm"},
    {"model.layers.{}.conv.in_proj", "blk.{}.shortconv.in_proj"},
    {"model.layers.{}.conv.out_proj", "blk.{}.shortconv.out_proj"},
    {"model.layers.{}.conv.conv", "blk.{}.shortconv.conv", Storage::taps},
    {"model.layers.{}.feed_forward.w1", "blk.{}.ffn_gate"},
    {"model.layers.{}.feed_forward.w3", "blk.{}.ffn_up"},
    {"model.layers.{}.feed_forward.w2", "blk.{}.ffn_down"},
    {"model.layers.{}.feed_forward.gate", "blk.{}.ffn_gate_inp"},
    {"model.layers.{}.feed_forward.expert_bias", "blk.{}.exp_probs_b.bias"},
    {"model.layers.{}.feed_forward.experts.{}.w1", "blk.{}.ffn_gate_exps", Storage::expert},
    {"model.layers.{}.feed_forward.experts.{}.w3", "blk.{}.ffn_up_exps", Storage::expert},
    {"model.layers.{}.feed_forward.experts.{}.w2", "blk.{}.ffn_down_exps", Storage::expert},
    {"model.layers.{}.feed_forward.experts.gate_up_proj", "blk.{}.ffn_gate_exps", Storage::gate_up},
    {"model.layers.{}.feed_forward.experts.down_proj", "blk.{}.ffn_down_exps"},
    // LFM3
    {"model.layers.{}.self_attn.gate_proj", "blk.{}.attn_gate"},
    {"model.layers.{}.self_attn.g_proj", "blk.{}.attn_gate"},
    {"model.layers.{}.post_operator_norm", "blk.{}.post_attention_norm"},
    {"model.layers.{}.post_ffn_norm", "blk.{}.post_ffw_norm"},
};

// Which layers attend.
inline void lfm2_layer_fields(Fields& f, Hyper& h) {
    if (f.is_writing()) return;
    f.flags("", "layer_types", "full_attention", "conv", h.attends);
    std::vector<uint32_t> attending;
    f.counts("", "full_attn_idxs", attending);
    if (!attending.empty() && h.attends.empty())
        for (uint32_t i = 0; i < std::min(h.n_layers, max_layers); ++i)
            h.attends.push_back(std::ranges::find(attending, i) != attending.end());
    list_kv_heads(h);
}

inline void lfm2_fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_theta = 1e6f;
    standard_fields(f, h);
    lfm2_layer_fields(f, h);
    f.required("shortconv.l_cache", "conv_L_cache", h.n_taps);
    f.expect("quantization_config", {});
}

inline Result<ModelSpec> lfm2_spec(const Hyper& h, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    NIBBLE_TRY(set_states(s, h, ShortConvSpec{static_cast<int32_t>(h.n_taps), 0}));
    s.output_norm = "token_embd_norm";
    return s;
}

}  // namespace nibble
