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

// GGUF files of other converters say "parallel" where the checkpoint said nothing; the norm that a serial
// block has says it rightly.
Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    const bool parallel = from_hf ? h.parallel : !tensors.contains("blk.0.ffn_norm.weight");
    for (LayerSpec& l : s.layers) {
        l.parallel = parallel;
        if (parallel) l.ffn_norm = "attn_norm";
    }
    return s;
}

}  // namespace

extern const Architecture stablelm_arch;
const Architecture stablelm_arch{"stablelm", {"stablelm"}, fields, build, standard_names()};

}  // namespace nibble
