// What the Gemma family shares: norms stored less one, scaled embeddings, GELU, names of the four norms.
// Included by gemma.cpp, gemma2.cpp and gemma3.cpp.
#pragma once

#include <cmath>

#include "src/model/architecture.h"

namespace nibble {

inline constexpr NamePair gemma_names[] = {
    {"model.norm", "output_norm", Storage::offset_one},
    {"model.layers.{}.input_layernorm", "blk.{}.attn_norm", Storage::offset_one},
    {"model.layers.{}.post_attention_layernorm", "blk.{}.ffn_norm", Storage::offset_one},
};

// With norms on both sides of a block, the one behind attention is called so.
inline constexpr NamePair sandwich_norm_names[] = {
    {"model.norm", "output_norm", Storage::offset_one},
    {"model.layers.{}.input_layernorm", "blk.{}.attn_norm", Storage::offset_one},
    {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm", Storage::offset_one},
    {"model.layers.{}.pre_feedforward_layernorm", "blk.{}.ffn_norm", Storage::offset_one},
    {"model.layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm", Storage::offset_one},
    {"model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm", Storage::offset_one},
    {"model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm", Storage::offset_one},
};
inline constexpr auto sandwich_names = joined(sandwich_norm_names, image_names);

// `deepest`: the number of layers of the one size whose GGUF files do not say that queries are scaled by the
// width of a head in the residual stream instead of their own.
inline void gemma_scale_fields(Fields& f, Hyper& h, uint32_t deepest) {
    float scalar = 0;
    f.optional("", "query_pre_attn_scalar", scalar);
    if (scalar > 0) h.attn_scale = 1 / std::sqrt(scalar);
    const bool silent = !f.from_hf() && !f.is_writing() && !f.states("attention.scale", "");
    if (silent && h.n_layers == deepest && h.n_heads > 0)
        h.attn_scale = 1 / std::sqrt(static_cast<float>(h.n_embd) / static_cast<float>(h.n_heads));
    if (!f.is_writing() || h.attn_scale > 0) f.optional("attention.scale", "", h.attn_scale);
}

inline void gemma_expectations(Fields& f) {
    f.expect("hidden_activation", {"gelu_pytorch_tanh"});
    f.expect("quantization_config", {});
    f.expect("use_bidirectional_attention", {"false"});
}

inline Result<ModelSpec> gemma_spec(const Hyper& h, const TensorMap& tensors, bool sandwich) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    s.embed_scale = std::sqrt(static_cast<float>(h.n_embd));
    set_dense_ffn(s, Activation::gelu_tanh, true);
    for (LayerSpec& l : s.layers) l.post_norm = sandwich;
    return s;
}

}  // namespace nibble
