// llama: Llama 2 and 3, TinyLlama, SmolLM2, R1 distillates, Mistral, Mixtral, InternLM 3; grouped queries,
// SwiGLU. Biases are present where their tensors are; GGUF files hold permuted query and key rows.
#include "src/model/architecture.h"

namespace nibble {
namespace {

// Mistral Small 3.1 and others see images.
constexpr auto names = joined(block_sparse_moe_names, image_names);

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    // Only texts longer than those it was made for rotate otherwise, which is beyond what it was made for.
    if (h.rope_scaling.type == "dynamic") h.rope_scaling.type = "none";
    sliding_fields(f, h, 0);
    expert_fields(f, h);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, from_hf ? RopeStyle::half : RopeStyle::adjacent, tensors));
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture llama_arch;
const Architecture llama_arch{
    "llama", {"llama", "mistral", "mixtral", "internlm3"}, fields, build, standard_names(), true, names};

}  // namespace nibble
