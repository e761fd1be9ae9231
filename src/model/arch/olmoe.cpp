// olmoe: OLMoE; experts in every layer, norms on whole queries and keys.
// The feed-forward length is that of one expert.
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
    expert_fields(f, h);
    if (!f.is_writing()) h.expert_norm = false;  // where nothing is stated
    f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
    f.expect("clip_qkv", {});
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::row);
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture olmoe_arch;
const Architecture olmoe_arch{"olmoe", {"olmoe"}, fields, build, standard_names(), false, names};

}  // namespace nibble
