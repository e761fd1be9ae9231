// afmoe: Trinity; norms around the blocks, a norm per head on q and k, a gate on the output of attention,
// experts chosen by sigmoid with a bias beside shared ones. Layers that see all do not rotate.
#include <cmath>

#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm"},
    {"model.layers.{}.pre_mlp_layernorm", "blk.{}.ffn_norm"},
    {"model.layers.{}.post_mlp_layernorm", "blk.{}.post_ffw_norm"},
    {"model.layers.{}.self_attn.gate_proj", "blk.{}.attn_gate"},
    {"model.layers.{}.mlp.router.gate", "blk.{}.ffn_gate_inp"},
    {"model.layers.{}.mlp.expert_bias", "blk.{}.exp_probs_b.bias"},
};

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    uint32_t period = 4;
    f.optional("", "global_attn_every_n_layers", period);
    sliding_fields(f, h, period);
    if (!f.is_writing()) h.rotated = h.sliding;
    bool scaled = !f.from_hf();  // GGUF cannot say that embeddings are not
    f.optional("", "mup_enabled", scaled);
    if (!scaled) f.fail({ErrorCode::unsupported, "mup_enabled", "is not true", ""});
    expert_fields(f, h);
    h.gating = Gating::sigmoid;
    gating_fields(f, h);
    dense_fields(f, h, "num_dense_layers");
    f.optional("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.optional("expert_shared_count", "num_shared_experts", h.n_experts_shared);
    f.optional("expert_weights_norm", "route_norm", h.expert_norm);
    f.optional("expert_weights_scale", "route_scale", h.expert_scale);
    f.expect("n_group", {"1"});
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    s.embed_scale = std::sqrt(static_cast<float>(h.n_embd));
    set_qk_norm(s, QkNorm::head);
    set_experts(s, h, tensors);
    for (LayerSpec& l : s.layers) l.post_norm = true;
    return s;
}

}  // namespace

extern const Architecture afmoe_arch;
const Architecture afmoe_arch{"afmoe", {"afmoe"}, fields, build, standard_names(), false, names};

}  // namespace nibble
