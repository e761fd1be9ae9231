// dots1: dots.llm1; a norm on every head of queries and keys, experts as in DeepSeek V3, without groups.
// The first layers are dense.
#include "src/model/arch/qwen3.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    sliding_fields(f, h, 0);
    expert_fields(f, h);
    if (!f.is_writing()) h.gating = Gating::sigmoid;  // where nothing is stated
    gating_fields(f, h);
    dense_fields(f, h, "first_k_dense_replace");
    if (f.from_hf()) h.expert_norm = false;
    f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
    f.optional("expert_weights_scale", "routed_scaling_factor", h.expert_scale);
    f.optional("expert_group_count", "n_group", h.n_expert_groups);
    f.optional("expert_group_used_count", "topk_group", h.n_expert_groups_used);
    f.optional("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.optional("expert_shared_count", "n_shared_experts", h.n_experts_shared);
    f.expect("scoring_func", {"noaux_tc", "sigmoid"});
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

}  // namespace

extern const Architecture dots1_arch;
const Architecture dots1_arch{"dots1", {"dots1"}, fields, qwen3_spec, standard_names()};

}  // namespace nibble
