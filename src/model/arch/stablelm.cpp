// stablelm: StableLM 2 and 3B; LayerNorm with a gated feed-forward, partial rotation.
// Norms on queries and keys and the parallel form are refused: no published small model has them.
#include "src/model/architecture.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    h.layer_norm = true;
    if (f.from_hf()) h.rope_share = 0.25f;
    standard_fields(f, h);
    f.optional("use_parallel_residual", "use_parallel_residual", h.parallel);
    f.expect("hidden_act", {"silu"});
    f.expect("qk_layernorm", {"false"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    if (h.parallel)
        for (LayerSpec& l : s.layers) l.ffn_norm = "attn_norm";
    return s;
}

}  // namespace

extern const Architecture stablelm_arch;
const Architecture stablelm_arch{"stablelm", {"stablelm"}, fields, build, standard_names()};

}  // namespace nibble
