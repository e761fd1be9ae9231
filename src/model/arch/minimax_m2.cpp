// minimax-m2: MiniMax M2, M2.1, M2.5; norms on whole queries and keys, part of a head rotates, experts in
// every layer, chosen by sigmoid with a bias. The feed-forward length is that of one expert.
#include <algorithm>

#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair choice_names[] = {
    {"model.layers.{}.block_sparse_moe.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
};
constexpr auto names = joined(block_sparse_moe_names, choice_names);

// Parts of other models that the same config.json can describe.
void expectations(Fields& f) {
    std::vector<bool> softmax;
    f.flags("", "attn_type_list", "", "", softmax);
    if (std::ranges::find(softmax, false) != softmax.end())
        f.fail({ErrorCode::unsupported, "attn_type_list", "has layers of linear attention", ""});
    f.expect("use_qk_norm", {"true"});
    f.expect("qk_norm_type", {"per_layer"});
    f.expect("scoring_func", {"sigmoid"});
    f.expect("shared_intermediate_size", {"0"});
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

void fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_theta = 5000000;
    standard_fields(f, h);
    f.optional("", "rotary_dim", h.rope_dim);
    expert_fields(f, h);
    if (f.from_hf()) h.n_ff_expert = h.n_ff;
    f.optional("expert_feed_forward_length", "", h.n_ff_expert);
    if (!f.is_writing()) h.gating = Gating::sigmoid;  // where nothing is stated
    gating_fields(f, h);
    expectations(f);
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::row);
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture minimax_m2_arch;
const Architecture minimax_m2_arch{"minimax-m2",     {"minimax_m2"}, fields, build,
                                   standard_names(), false,          names};

}  // namespace nibble
