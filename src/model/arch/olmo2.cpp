// olmo2: OLMo 2 and 3; norms behind the blocks, and on whole queries and keys before they are cut.
// OLMo 3 adds a window on three layers of four, which rotate without scaling.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm"},
    {"model.layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm"},
};

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    sliding_fields(f, h, 4);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
    if (h.window > 0) h.rope_theta_local = h.rope_theta;
    f.optional("", "rope_parameters.sliding_attention.rope_theta", h.rope_theta_local);
    f.expect("rope_parameters.sliding_attention.rope_type", {"default"});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::row);
    for (LayerSpec& l : s.layers) l.pre_norm = false, l.post_norm = true;
    return s;
}

}  // namespace

extern const Architecture olmo2_arch;
const Architecture olmo2_arch{"olmo2", {"olmo2", "olmo3"}, fields, build, standard_names(), false, names};

}  // namespace nibble
