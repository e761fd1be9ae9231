// mellum: Mellum 2; as qwen3moe, and a window on three layers of four, which rotate with a base of their own.
// Layers without a router are dense.
#include "src/model/arch/qwen3.h"

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
    qwen3_fields(f, h);
    f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
    f.expect("rope_parameters.sliding_attention.rope_type", {"default"});
}

}  // namespace

extern const Architecture mellum_arch;
const Architecture mellum_arch{"mellum", {"mellum"}, fields, qwen3_spec, standard_names(), false, names};

}  // namespace nibble
