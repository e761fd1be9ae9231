// cohere2: Command-R7B, Command-A; as cohere, but three layers of four slide and rotate, the fourth does
// neither. LayerNorm without bias, one norm for parallel blocks, adjacent rotation, scaled logits.
#include "src/model/architecture.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    h.layer_norm = true;
    standard_fields(f, h);
    sliding_fields(f, h, 4);
    if (!f.is_writing()) h.rotated = h.sliding;
    f.required("logit_scale", "logit_scale", h.logit_scale);
    f.expect("hidden_act", {"silu"});
    f.expect("use_qk_norm", {"false"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::adjacent, tensors));
    s.logit_scale = h.logit_scale;
    for (LayerSpec& l : s.layers) l.parallel = true, l.ffn_norm = "attn_norm";
    return s;
}

}  // namespace

extern const Architecture cohere2_arch;
const Architecture cohere2_arch{"cohere2", {"cohere2"}, fields, build, standard_names()};

}  // namespace nibble
