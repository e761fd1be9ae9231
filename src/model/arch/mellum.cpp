// mellum: Mellum 2; as qwen3moe, and a window on three layers of four, which rotate with a base of their own.
// Layers without a router are dense.
#include "src/model/architecture.h"

namespace nibble {
namespace {

// Not implemented: the layer that guesses tokens further ahead
constexpr NamePair names[] = {{"mtp.*", ""}};

void fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_theta = 500000, h.rope_theta_local = 10000;
    standard_fields(f, h);
    sliding_fields(f, h, 4);
    if (!f.from_hf() && !f.is_writing() && h.window > 0) h.rope_theta_local = h.rope_theta;
    if (!f.is_writing() || h.window > 0)
        f.optional("rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta", h.rope_theta_local);
    if (h.window == 0) h.rope_theta_local = 0;
    expert_fields(f, h);
    f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
    f.optional("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.expect("hidden_act", {"silu"});
    f.expect("rope_parameters.sliding_attention.rope_type", {"default"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture mellum_arch;
const Architecture mellum_arch{"mellum", {"mellum"}, fields, build, standard_names(), false, names};

}  // namespace nibble
