// gemma3: Gemma 3, the text model; five sliding layers to one, a rotary base for each kind, q/k norms.
// config.json of the larger ones leaves out what their class assumes.
#include "src/model/arch/gemma.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    f.assume("num_attention_heads", 8u);
    f.assume("num_key_value_heads", 4u);
    f.assume("head_dim", 256u);
    f.assume("max_position_embeddings", 131072u);
    f.assume("rms_norm_eps", 1e-6f);
    if (!f.is_writing()) h.rope_theta = 1e6f, h.rope_theta_local = 1e4f;
    standard_fields(f, h);
    sliding_fields(f, h, 6);
    f.optional("rope.freq_base_swa", "rope_local_base_freq|rope_parameters.sliding_attention.rope_theta",
               h.rope_theta_local);
    f.optional("attn_logit_softcapping", "attn_logit_softcapping", h.attn_softcap);
    f.optional("final_logit_softcapping", "final_logit_softcapping", h.logit_softcap);
    gemma_scale_fields(f, h, 62);
    gemma_expectations(f);
    f.expect("rope_parameters.sliding_attention.rope_type", {"default"});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(gemma_spec(h, tensors, true));
    set_qk_norm(s, QkNorm::head);
    return s;
}

}  // namespace

extern const Architecture gemma3_arch;
const Architecture gemma3_arch{
    "gemma3", {"gemma3_text", "gemma3"}, fields, build, standard_names(), false, sandwich_names};

}  // namespace nibble
