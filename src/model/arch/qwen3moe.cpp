// qwen3moe: Qwen 3 with experts; a norm on every head of queries and keys.
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
};

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    sliding_fields(f, h, 0);
    expert_fields(f, h);
    if (f.from_hf()) h.expert_norm = false;  // where nothing is stated; GGUF files leave out that it is so
    f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
    f.optional("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture qwen3moe_arch;
const Architecture qwen3moe_arch{"qwen3moe", {"qwen3_moe"}, fields, build, standard_names(), false, names};

}  // namespace nibble
