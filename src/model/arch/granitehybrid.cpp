// granitehybrid: Granite 4, dense and with experts; state spaces (Mamba-2) in most layers, attention without
// positions in the others.
#include <algorithm>

#include "src/model/arch/granite.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.mamba.in_proj", "blk.{}.ssm_in"},
    {"model.layers.{}.mamba.conv1d", "blk.{}.ssm_conv1d", Storage::taps},
    {"model.layers.{}.mamba.dt_bias", "blk.{}.ssm_dt.bias"},
    {"model.layers.{}.mamba.A_log", "blk.{}.ssm_a", Storage::decay},
    {"model.layers.{}.mamba.D", "blk.{}.ssm_d", Storage::column},
    {"model.layers.{}.mamba.norm", "blk.{}.ssm_norm"},
    {"model.layers.{}.mamba.out_proj", "blk.{}.ssm_out"},
    {"model.layers.{}.block_sparse_moe.router.layer", "blk.{}.ffn_gate_inp"},
    {"model.layers.{}.block_sparse_moe.input_linear", "blk.{}.ffn_gate_exps", Storage::gate_up},
    {"model.layers.{}.block_sparse_moe.output_linear", "blk.{}.ffn_down_exps"},
    {"model.layers.{}.shared_mlp.input_linear", "blk.{}.ffn_gate_shexp", Storage::gate_up},
    {"model.layers.{}.shared_mlp.output_linear", "blk.{}.ffn_down_shexp"},
};

bool has_states(const Hyper& h) { return std::ranges::find(h.attends, false) != h.attends.end(); }

void state_fields(Fields& f, Hyper& h) {
    f.required("ssm.conv_kernel", "mamba_d_conv", h.n_taps);
    f.required("ssm.group_count", "mamba_n_groups", h.delta_k_heads);
    f.required("ssm.time_step_rank", "mamba_n_heads", h.delta_v_heads);
    f.required("ssm.state_size", "mamba_d_state", h.delta_k_dim);
    uint32_t expand = 2;
    f.optional("", "mamba_expand", expand);
    const bool sane = h.n_embd <= max_width && expand <= 64;
    uint32_t inner = f.is_writing() ? h.delta_v_heads * h.delta_v_dim : sane ? expand * h.n_embd : 0;
    f.optional("ssm.inner_size", "", inner);
    if (!f.is_writing() && h.delta_v_heads > 0) h.delta_v_dim = inner / h.delta_v_heads;
    f.expect("mamba_proj_bias", {"false"});
    f.expect("time_step_limit", {R"([0.0,{"__float__":"Infinity"}])"});  // none
}

void fields(Fields& f, Hyper& h) {
    granite_fields(f, h, false);
    f.flags("", "layer_types|layers_block_type", "full_attention|attention", "linear_attention|mamba",
            h.attends);
    if (f.from_hf()) list_kv_heads(h);
    if (has_states(h)) state_fields(f, h);
    expert_fields(f, h);
    f.optional("expert_shared_feed_forward_length", "shared_intermediate_size", h.n_ff_shared);
    if (f.from_hf() && h.n_experts == 0) h.n_ff = h.n_ff_shared;
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    if (h.delta_k_heads > 1)
        return Error{ErrorCode::unsupported, from_hf ? "mamba_n_groups" : "ssm.group_count",
                     "is not 1: norms of groups are not implemented", ""};
    ModelSpec s = NIBBLE_TRY(granite_spec(h, from_hf, tensors));
    const auto number = [](uint32_t n) { return static_cast<int32_t>(n); };
    if (has_states(h))
        NIBBLE_TRY(set_states(s, h,
                              Mamba2Spec{number(h.delta_k_heads), number(h.delta_v_heads),
                                         number(h.delta_k_dim), number(h.delta_v_dim), number(h.n_taps), 0}));
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture granitehybrid_arch;
const Architecture granitehybrid_arch{
    "granitehybrid", {"granitemoehybrid"}, fields, build, standard_names(), true, names};

}  // namespace nibble
