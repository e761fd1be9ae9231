// hunyuan-moe: Hunyuan A13B; as the dense ones, experts chosen by softmax beside a shared one in every layer.
// config.json lists numbers per layer that are all the same.
#include "src/model/arch/hunyuan.h"

namespace nibble {
namespace {

constexpr NamePair expert_names[] = {
    {"model.layers.{}.mlp.gate.wg", "blk.{}.ffn_gate_inp"},
    {"model.layers.{}.mlp.shared_mlp.gate_proj", "blk.{}.ffn_gate_shexp"},
    {"model.layers.{}.mlp.shared_mlp.up_proj", "blk.{}.ffn_up_shexp"},
    {"model.layers.{}.mlp.shared_mlp.down_proj", "blk.{}.ffn_down_shexp"},
};
constexpr auto names = joined(hunyuan_names, expert_names);

void fields(Fields& f, Hyper& h) {
    hunyuan_fields(f, h);
    expert_fields(f, h);
    f.same("", "moe_topk", h.n_experts_used);
    h.expert_norm = true;
    f.expect("norm_topk_prob", {"true"});
    f.expect("use_mixed_mlp_moe", {"true"});
    if (f.from_hf()) h.n_ff_expert = h.n_ff;
    f.same("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    if (f.from_hf()) h.n_experts_shared = 1;
    f.same("expert_shared_count", "num_shared_expert", h.n_experts_shared);
    if (f.from_hf()) h.n_ff_shared = h.n_ff;
    f.optional("expert_shared_feed_forward_length", "", h.n_ff_shared);
}

}  // namespace

extern const Architecture hunyuan_moe_arch;
const Architecture hunyuan_moe_arch{
    "hunyuan-moe", {"hunyuan_v1_moe"}, fields, hunyuan_spec, standard_names(), false, names};

}  // namespace nibble
