// What Command-R and its successors share: LayerNorm without bias, one norm for parallel blocks, adjacent
// rotation, scaled logits. Included by cohere.cpp, cohere2.cpp and cohere2moe.cpp.
#pragma once

#include "src/model/architecture.h"

namespace nibble {

inline void cohere_fields(Fields& f, Hyper& h) {
    f.assume("rope_theta", 500000.0f);
    standard_fields(f, h);
    f.required("logit_scale", "logit_scale", h.logit_scale);
    f.expect("hidden_act", {"silu"});
    f.expect("use_qk_norm", {"false"});
    f.expect("quantization_config", {});
}

inline void cohere_layer_norm_fields(Fields& f, Hyper& h) {
    h.layer_norm = true;
    cohere_fields(f, h);
}

inline Result<ModelSpec> cohere_spec(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::adjacent, tensors));
    s.logit_scale = h.logit_scale;
    for (LayerSpec& l : s.layers) l.parallel = true, l.ffn_norm = "attn_norm";
    return s;
}

}  // namespace nibble
