// What Qwen 3 and its kin share: a norm on every head of queries and keys, experts in the layers that have a
// router, and beside the text images that are not implemented.
// Included by qwen3*.cpp, qwen2vl.cpp, mellum.cpp and dots1.cpp.
#pragma once

#include "src/model/architecture.h"

namespace nibble {

inline constexpr NamePair qwen_vl_names[] = {{"visual.*", ""}, {"model.visual.*", ""}};

// Behind standard_fields().
inline void qwen3_fields(Fields& f, Hyper& h) {
    expert_fields(f, h);
    f.optional("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

inline Result<ModelSpec> qwen3_spec(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    set_experts(s, h, tensors);
    return s;
}

}  // namespace nibble
