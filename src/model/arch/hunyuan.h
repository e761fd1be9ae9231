// What Hunyuan's dense models and those with experts share: llama with a norm on every head of queries and
// keys that stands behind the rotation, whose base grows with a stated alpha. Included by hunyuan_*.cpp.
#pragma once

#include <algorithm>
#include <cmath>

#include "ggml/base/cat.h"
#include "src/model/architecture.h"

namespace nibble {

inline constexpr NamePair hunyuan_names[] = {
    {"model.layers.{}.self_attn.query_layernorm", "blk.{}.attn_q_norm"},
    {"model.layers.{}.self_attn.key_layernorm", "blk.{}.attn_k_norm"},
};

inline void hunyuan_fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    f.expect("hidden_act", {"silu"});
    f.expect("use_qk_norm", {"true"});
    f.expect("use_cla", {"false"});
    f.expect("quantization_config", {});
    // What config.json calls dynamic does not depend on the length of a text: it is a base, which GGUF
    // states.
    float alpha = 0;
    f.optional("", "rope_scaling.alpha|rope_parameters.alpha", alpha);
    if (h.rope_scaling.type != "dynamic" || alpha == 0) return;
    const double dim = h.head_dim > 0 ? h.head_dim : h.n_embd / std::max(1u, h.n_heads);
    if (dim <= 2) return f.fail({ErrorCode::corrupt, "head_dim", cat(dim, " leaves nothing to rotate"), ""});
    h.rope_theta *= static_cast<float>(std::pow(static_cast<double>(alpha), dim / (dim - 2)));
    h.rope_scaling.type = "none";
}

inline Result<ModelSpec> hunyuan_spec(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    for (LayerSpec& l : s.layers) std::get<AttentionSpec>(l.mixer).rope_before_norm = true;
    set_experts(s, h, tensors);
    return s;
}

}  // namespace nibble
