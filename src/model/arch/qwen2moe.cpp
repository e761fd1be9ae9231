// qwen2moe: Qwen 1.5 and 2 with experts; biases on q, k, v and a gated shared expert.
// Layers without a router are dense, whatever the fields that say which are.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.mlp.gate", "blk.{}.ffn_gate_inp"},
    {"model.layers.{}.mlp.experts.{}.gate_proj", "blk.{}.ffn_gate_exps", Storage::expert},
    {"model.layers.{}.mlp.experts.{}.up_proj", "blk.{}.ffn_up_exps", Storage::expert},
    {"model.layers.{}.mlp.experts.{}.down_proj", "blk.{}.ffn_down_exps", Storage::expert},
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps", Storage::gate_up},
    {"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps"},
    {"model.layers.{}.mlp.shared_expert_gate", "blk.{}.ffn_gate_inp_shexp"},
    {"model.layers.{}.mlp.shared_expert.gate_proj", "blk.{}.ffn_gate_shexp"},
    {"model.layers.{}.mlp.shared_expert.up_proj", "blk.{}.ffn_up_shexp"},
    {"model.layers.{}.mlp.shared_expert.down_proj", "blk.{}.ffn_down_shexp"},
};

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    f.assume("use_sliding_window", false);
    sliding_fields(f, h, 0);
    expert_fields(f, h);
    if (!f.is_writing()) h.expert_norm = false;  // where nothing is stated
    f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
    f.optional("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.optional("expert_shared_feed_forward_length", "shared_expert_intermediate_size", h.n_ff_shared);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture qwen2moe_arch;
const Architecture qwen2moe_arch{"qwen2moe", {"qwen2_moe"}, fields, build, standard_names(), false, names};

}  // namespace nibble
