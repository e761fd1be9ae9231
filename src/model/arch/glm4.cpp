// glm4: GLM-4 (0414); norms on both sides of a block, fused gate and up, half of a head rotates.
// Rotation in adjacent pairs, in checkpoints and GGUF files alike.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.mlp.gate_up_proj", "blk.{}.ffn_up"},
    {"model.layers.{}.post_self_attn_layernorm", "blk.{}.post_attention_norm"},
    {"model.layers.{}.post_mlp_layernorm", "blk.{}.post_ffw_norm"},
};

void fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_share = 0.5f;
    standard_fields(f, h);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::adjacent, tensors));
    for (LayerSpec& l : s.layers) l.post_norm = true;
    return s;
}

}  // namespace

extern const Architecture glm4_arch;
const Architecture glm4_arch{"glm4", {"glm4"}, fields, build, standard_names(), false, names};

}  // namespace nibble
