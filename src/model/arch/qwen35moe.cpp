// qwen35moe: Qwen 3.5 and 3.6 with experts, their text; a shared expert behind a gate.
// Otherwise as qwen35.
#include "src/model/arch/qwen35.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    f.required("expert_feed_forward_length", "moe_intermediate_size", h.n_ff_expert);
    if (!f.is_writing()) h.n_ff = h.n_ff_expert;  // no layer is dense, and files need not say how wide
    qwen35_fields(f, h);
    expert_fields(f, h);
    f.optional("expert_shared_feed_forward_length", "shared_expert_intermediate_size", h.n_ff_shared);
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(qwen35_spec(h, tensors));
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture qwen35moe_arch;
const Architecture qwen35moe_arch{
    "qwen35moe", {"qwen3_5_moe", "qwen3_5_moe_text"}, fields, build, standard_names(), false, qwen35_names,
    true};

}  // namespace nibble
