// What the Granite family shares: four multipliers. GGUF files hold permuted query and key rows, and the
// divisor of the logits. Included by granite.cpp, granite_swa.cpp, granitemoe.cpp and granitehybrid.cpp.
#pragma once

#include <algorithm>
#include <string>

#include "ggml/base/cat.h"
#include "src/model/architecture.h"

namespace nibble {

// Whether queries and keys rotate: GGUF says so by a key meant for something else, and they do where it is
// silent. `usual`: where config.json is silent.
inline void granite_fields(Fields& f, Hyper& h, bool usual) {
    standard_fields(f, h);
    std::string positions = usual ? "rope" : "nope";
    f.optional("", "position_embedding_type", positions);
    bool rotates = f.is_writing() ? h.rotated.empty() : !f.from_hf() || positions == "rope";
    if (!f.is_writing() || !rotates) f.optional("rope.scaling.finetuned", "", rotates);
    if (!f.is_writing() && !rotates) h.rotated.assign(std::min(h.n_layers, max_layers), false);
    f.optional("attention.scale", "attention_multiplier", h.attn_scale);
    f.optional("embedding_scale", "embedding_multiplier", h.embed_scale);
    f.optional("residual_scale", "residual_multiplier", h.residual_scale);
    f.optional("logit_scale", "logits_scaling", h.logit_scale);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

inline Result<ModelSpec> granite_spec(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    if (!(h.logit_scale > 0))
        return Error{ErrorCode::corrupt, "logits_scaling", cat(h.logit_scale, " has no meaning"), ""};
    ModelSpec s = NIBBLE_TRY(standard_spec(h, from_hf ? RopeStyle::half : RopeStyle::adjacent, tensors));
    s.embed_scale = h.embed_scale;
    s.residual_scale = h.residual_scale;
    s.logit_scale = 1 / h.logit_scale;
    return s;
}

}  // namespace nibble
