// chatglm: GLM-4-9B and GLM-Edge; biases on queries, keys and values, fused gate and up, half of a head
// rotates. Rotation in adjacent pairs, in checkpoints and GGUF files alike.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.mlp.gate_up_proj", "blk.{}.ffn_up"},
};

void fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_share = 0.5f;
    standard_fields(f, h);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    return standard_spec(h, RopeStyle::adjacent, tensors);
}

}  // namespace

extern const Architecture chatglm_arch;
const Architecture chatglm_arch{"chatglm", {"glm"}, fields, build, standard_names(), false, names};

}  // namespace nibble
