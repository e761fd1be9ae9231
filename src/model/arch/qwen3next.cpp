// qwen3next: Qwen 3 Next and Qwen 3 Coder Next; three layers of linear attention (gated delta rule) to one of
// gated attention, experts and a shared one behind a gate. Queries, keys, values and gates of a key head are
// stored together.
#include "src/model/arch/qwen35.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.norm", "output_norm", Storage::offset_one},
    {"model.layers.{}.input_layernorm", "blk.{}.attn_norm", Storage::offset_one},
    {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm", Storage::offset_one},
    {"model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm", Storage::offset_one},
    {"model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm", Storage::offset_one},
    {"model.layers.{}.linear_attn.in_proj_qkvz", "blk.{}.ssm_in", Storage::head_qkvz},
    {"model.layers.{}.linear_attn.in_proj_ba", "blk.{}.ssm_ba"},
    {"model.layers.{}.linear_attn.conv1d", "blk.{}.ssm_conv1d", Storage::taps},
    {"model.layers.{}.linear_attn.A_log", "blk.{}.ssm_a", Storage::row_decay},
    {"model.layers.{}.linear_attn.dt_bias", "blk.{}.ssm_dt.bias"},
    {"model.layers.{}.linear_attn.norm", "blk.{}.ssm_norm"},
    {"model.layers.{}.linear_attn.out_proj", "blk.{}.ssm_out"},
    {"model.layers.{}.mlp.shared_expert_gate", "blk.{}.ffn_gate_inp_shexp"},
    {"model.layers.{}.mlp.shared_expert.gate_proj", "blk.{}.ffn_gate_shexp"},
    {"model.layers.{}.mlp.shared_expert.up_proj", "blk.{}.ffn_up_shexp"},
    {"model.layers.{}.mlp.shared_expert.down_proj", "blk.{}.ffn_down_shexp"},
    // The layer that guesses further ahead
    {"model.layers.{}.enorm", "blk.{}.nextn.enorm", Storage::offset_one},
    {"model.layers.{}.hnorm", "blk.{}.nextn.hnorm", Storage::offset_one},
    {"model.layers.{}.shared_head.norm", "blk.{}.nextn.shared_head_norm", Storage::offset_one},
};

void fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_share = 0.25f;
    next_layer_fields(f, h);
    standard_fields(f, h);
    delta_fields(f, h);
    attending_fields(f, h, 4);
    expert_fields(f, h);
    f.optional("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.optional("expert_shared_feed_forward_length", "shared_expert_intermediate_size", h.n_ff_shared);
    f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(qwen35_spec(h, tensors, false));
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture qwen3next_arch;
const Architecture qwen3next_arch{"qwen3next",      {"qwen3_next"}, fields, build,
                                  standard_names(), false,          names,  true};

}  // namespace nibble
