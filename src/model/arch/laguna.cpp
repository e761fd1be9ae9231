// laguna: Laguna XS; a norm per head on q and k, layers that differ in their number of heads, a gate on the
// output of attention, experts chosen by sigmoid with a bias beside a shared one. Layers that see all rotate
// half of a head, sliding ones all of it with a base of their own.
#include <algorithm>

#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.self_attn.g_proj", "blk.{}.attn_gate"},
    {"model.layers.{}.mlp.experts.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    {"model.layers.{}.mlp.shared_expert.gate_proj", "blk.{}.ffn_gate_shexp"},
    {"model.layers.{}.mlp.shared_expert.up_proj", "blk.{}.ffn_up_shexp"},
    {"model.layers.{}.mlp.shared_expert.down_proj", "blk.{}.ffn_down_shexp"},
};

// Of sliding layers the rotation.
void local_rope_fields(Fields& f, Hyper& h) {
    constexpr std::string_view base = "rope_parameters.sliding_attention.rope_theta";
    if (h.window == 0) return;
    if (!f.is_writing()) h.rope_theta_local = f.from_hf() ? 10000 : h.rope_theta;
    f.optional("rope.freq_base_swa", base, h.rope_theta_local);
    if (!f.is_writing()) h.head_dim_local = h.head_dim;
    uint32_t rotated = h.head_dim_local;
    f.optional("rope.dimension_count_swa", "", rotated);
    if (rotated != h.head_dim_local)
        f.fail({ErrorCode::unsupported, "rope.dimension_count_swa", "is not all of a head", ""});
    f.expect("rope_parameters.sliding_attention.partial_rotary_factor", {"1.0", "1"});
    f.expect("rope_parameters.sliding_attention.rope_type", {"default"});
}

void fields(Fields& f, Hyper& h) {
    f.counts("", "num_attention_heads_per_layer", h.heads);
    standard_fields(f, h);
    for (const uint32_t n : h.heads) h.n_heads = std::max(h.n_heads, n);
    sliding_fields(f, h, 4, true);
    local_rope_fields(f, h);
    expert_fields(f, h);
    h.gating = Gating::sigmoid;
    gating_fields(f, h);
    dense_fields(f, h, "");
    f.required("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.required("expert_shared_feed_forward_length", "shared_expert_intermediate_size", h.n_ff_shared);
    f.optional("expert_weights_norm", "", h.expert_norm);
    f.optional("expert_weights_scale", "moe_routed_scaling_factor", h.expert_scale);
    f.expect("moe_apply_router_weight_on_input", {"false"});
    f.expect("moe_router_logit_softcapping", {"0.0", "0"});
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    set_experts(s, h, tensors);
    for (LayerSpec& l : s.layers) std::get<AttentionSpec>(l.mixer).gate_act = Activation::softplus;
    return s;
}

}  // namespace

extern const Architecture laguna_arch;
const Architecture laguna_arch{"laguna", {"laguna"}, fields, build, standard_names(), false, names};

}  // namespace nibble
