// llama: Llama 2 and 3, TinyLlama, SmolLM2, R1 distillates, Mistral; pre-norm, grouped queries, SwiGLU.
// Biases are present where their tensors are; GGUF files hold permuted query and key rows.
#include "src/model/architecture.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    sliding_fields(f, h, 0);
    f.expect("hidden_act", {"silu"});
    f.expect("pretraining_tp", {"1"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    return standard_spec(h, from_hf ? RopeStyle::half : RopeStyle::adjacent, tensors);
}

}  // namespace

extern const Architecture llama_arch;
const Architecture llama_arch{"llama", {"llama", "mistral"}, fields, build, standard_names(), true};

}  // namespace nibble
