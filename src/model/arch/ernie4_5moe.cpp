// ernie4_5-moe: ERNIE 4.5 with experts; as the dense ones, experts chosen by softmax with a bias beside
// shared ones. Its layers that guess tokens further ahead are left out.
#include "ggml/base/cat.h"
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.mlp.moe_statics.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    {"model.mtp_*", ""},
};

void fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_theta = 500000;
    standard_fields(f, h);
    expert_fields(f, h);
    h.expert_norm = true;
    uint32_t interval = 1;
    f.optional("interleave_moe_layer_step", "moe_layer_interval", interval);
    if (interval != 1)
        f.fail({ErrorCode::unsupported, "moe_layer_interval", cat("is ", interval, ", not 1"), ""});
    f.optional("leading_dense_block_count", "moe_layer_start_index", h.n_dense_layers);
    f.required("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    f.optional("expert_shared_count", "moe_num_shared_experts", h.n_experts_shared);
    if (f.from_hf()) h.n_ff_shared = h.n_experts_shared * h.n_ff_expert;
    f.optional("expert_shared_feed_forward_length", "", h.n_ff_shared);  // others need it
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::adjacent, tensors));
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture ernie4_5moe_arch;
const Architecture ernie4_5moe_arch{"ernie4_5-moe", {"ernie4_5_moe"}, fields, build, standard_names(), false,
                                    names};

}  // namespace nibble
