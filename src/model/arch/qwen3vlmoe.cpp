// qwen3vlmoe: Qwen 3 VL with experts, its text.
// Otherwise as qwen3vl.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    // Not implemented: images
    {"visual.*", ""},
    {"model.visual.*", ""},
};

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    section_fields(f, h);
    expert_fields(f, h);
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

extern const Architecture qwen3vlmoe_arch;
const Architecture qwen3vlmoe_arch{
    "qwen3vlmoe", {"qwen3_vl_moe", "qwen3_vl_moe_text"}, fields, build, standard_names(), false, names};

}  // namespace nibble
