// lfm2moe: LFM2 with experts, chosen by sigmoid with a bias; the first layers are dense.
// Otherwise as lfm2.
#include "src/model/arch/lfm2.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    lfm2_fields(f, h);
    expert_fields(f, h);
    uint32_t function = 2;  // sigmoid
    f.optional("expert_gating_func", "", function);
    if (function != 2) f.fail({ErrorCode::unsupported, "expert_gating_func", "is not 2 (sigmoid)", ""});
    h.gating = Gating::sigmoid;
    f.optional("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.optional("leading_dense_block_count", "num_dense_layers", h.n_dense_layers);
    f.optional("expert_weights_scale", "routed_scaling_factor", h.expert_scale);
    f.expect("norm_topk_prob", {"true"});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(lfm2_spec(h, tensors));
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture lfm2moe_arch;
const Architecture lfm2moe_arch{"lfm2moe", {"lfm2_moe"}, fields, build, standard_names(), false, lfm2_names};

}  // namespace nibble
