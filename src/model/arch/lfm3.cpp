// lfm3: LFM3; gated short convolutions, layers that slide and layers that see all, of which half of a head
// rotates; norms around the blocks, a gate on each head's output.
#include <utility>

#include "src/model/arch/lfm2.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_theta = 1e6f;
    if (!f.is_writing()) h.rope_theta_local = 10000;
    standard_fields(f, h);
    if (f.from_hf() && h.rope_scaling.type == "proportional") {
        h.rope_scaling.type = "none";
        h.rotated_share = std::exchange(h.rope_share, 1.0f);
    }
    f.optional("rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta", h.rope_theta_local);
    if (f.from_hf()) {
        f.flags("", "layer_types", "full_attention|sliding_attention", "conv", h.attends);
        f.flags("", "layer_types", "sliding_attention", "full_attention|conv", h.sliding);
        f.required("", "sliding_window", h.window);
        list_kv_heads(h);
    } else {
        sliding_fields(f, h, 1);
    }
    f.required("shortconv.l_cache", "conv_L_cache", h.n_taps);
    f.expect("rope_parameters.sliding_attention.rope_type", {"default"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(lfm2_spec(h, tensors));
    const bool around = tensors.contains("blk.0.post_attention_norm.weight");
    for (LayerSpec& l : s.layers) l.post_norm = around;
    return s;
}

}  // namespace

extern const Architecture lfm3_arch;
const Architecture lfm3_arch{"lfm3", {"lfm3"}, fields, build, standard_names(), false, lfm2_names};

}  // namespace nibble
