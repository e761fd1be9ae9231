// nemotron_h_moe: Nemotron 3; as nemotron_h, with experts of squared ReLU chosen by sigmoid with a bias, in
// the large ones of a compressed input, beside a shared one.
#include "src/model/arch/nemotron_h.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    nemotron_h_fields(f, h);
    expert_fields(f, h);
    h.gating = Gating::sigmoid;
    f.optional("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.optional("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size", h.n_ff_shared);
    f.optional("expert_shared_count", "n_shared_experts", h.n_experts_shared);
    f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
    f.optional("expert_weights_scale", "routed_scaling_factor", h.expert_scale);
    f.optional("expert_group_count", "n_group", h.n_expert_groups);
    f.optional("expert_group_used_count", "topk_group", h.n_expert_groups_used);
    if (!f.is_writing() || h.expert_latent_dim > 0)
        f.optional("moe_latent_size", "moe_latent_size", h.expert_latent_dim);
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    return nemotron_h_spec(h, tensors);
}

}  // namespace

extern const Architecture nemotron_h_moe_arch;
const Architecture nemotron_h_moe_arch{"nemotron_h_moe",      {"nemotron_h"}, fields,           build,
                                       standard_names(),      false,          nemotron_h_names, false,
                                       nemotron_h_has_experts};

}  // namespace nibble
