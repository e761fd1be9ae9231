// granitemoe: Granite 3 with experts; the four multipliers of Granite, gate and up of an expert in one
// matrix. GGUF files hold permuted query and key rows, and the divisor of the logits.
#include "ggml/base/cat.h"
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.block_sparse_moe.router.layer", "blk.{}.ffn_gate_inp"},
    {"model.layers.{}.block_sparse_moe.input_linear", "blk.{}.ffn_gate_exps", Storage::gate_up},
    {"model.layers.{}.block_sparse_moe.output_linear", "blk.{}.ffn_down_exps"},
};

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    expert_fields(f, h);
    f.optional("attention.scale", "attention_multiplier", h.attn_scale);
    f.optional("embedding_scale", "embedding_multiplier", h.embed_scale);
    f.optional("residual_scale", "residual_multiplier", h.residual_scale);
    f.optional("logit_scale", "logits_scaling", h.logit_scale);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    if (!(h.logit_scale > 0))
        return Error{ErrorCode::corrupt, "logits_scaling", cat(h.logit_scale, " has no meaning"), ""};
    ModelSpec s = NIBBLE_TRY(standard_spec(h, from_hf ? RopeStyle::half : RopeStyle::adjacent, tensors));
    s.embed_scale = h.embed_scale;
    s.residual_scale = h.residual_scale;
    s.logit_scale = 1 / h.logit_scale;
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture granitemoe_arch;
const Architecture granitemoe_arch{"granitemoe",     {"granitemoe"}, fields, build,
                                   standard_names(), true,           names};

}  // namespace nibble
