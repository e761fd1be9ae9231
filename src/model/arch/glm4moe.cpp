// glm4moe: GLM 4.5, 4.5 Air, 4.6; experts as in DeepSeek V3 with ordinary attention, half of a head rotates.
// GGUF files have the feed-forward's norm under the name of the attention's.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm"},
};

void expert_choice_fields(Fields& f, Hyper& h) {
    uint32_t function = 2;  // sigmoid
    f.optional("expert_gating_func", "", function);
    if (function != 2) f.fail({ErrorCode::unsupported, "expert_gating_func", "is not 2 (sigmoid)", ""});
    h.gating = Gating::sigmoid;
    f.optional("expert_group_count", "n_group", h.n_expert_groups);
    f.optional("expert_group_used_count", "topk_group", h.n_expert_groups_used);
    f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
    f.optional("expert_weights_scale", "routed_scaling_factor", h.expert_scale);
}

void fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_share = 0.5f;
    next_layer_fields(f, h);
    standard_fields(f, h);
    expert_fields(f, h);
    expert_choice_fields(f, h);
    f.optional("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.optional("expert_shared_count", "n_shared_experts", h.n_experts_shared);
    f.optional("leading_dense_block_count", "first_k_dense_replace", h.n_dense_layers);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    if (tensors.contains("blk.0.attn_q_norm.weight")) set_qk_norm(s, QkNorm::head);
    set_experts(s, h, tensors);
    for (LayerSpec& l : s.layers) l.ffn_norm = "post_attention_norm";
    return s;
}

}  // namespace

extern const Architecture glm4moe_arch;
const Architecture glm4moe_arch{"glm4moe", {"glm4_moe"}, fields, build, standard_names(), false, names, true};

}  // namespace nibble
