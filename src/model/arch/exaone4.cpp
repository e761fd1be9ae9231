// exaone4: EXAONE 4; norms behind the blocks and on the heads of queries and keys. Where there is a window,
// the layers without one do not rotate.
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
    if (h.window > 0) h.rotated = h.sliding;
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    for (LayerSpec& l : s.layers) l.pre_norm = false, l.post_norm = true;
    return s;
}

}  // namespace

extern const Architecture exaone4_arch;
const Architecture exaone4_arch{"exaone4", {"exaone4"}, fields, build, standard_names(), false, names};

}  // namespace nibble
