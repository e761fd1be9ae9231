// ernie4_5: ERNIE 4.5, the dense ones; llama with rotation in adjacent pairs, in checkpoints and GGUF files
// alike. Biases are present where their tensors are.
#include "src/model/architecture.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_theta = 500000;
    standard_fields(f, h);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    return standard_spec(h, RopeStyle::adjacent, tensors);
}

}  // namespace

extern const Architecture ernie4_5_arch;
const Architecture ernie4_5_arch{"ernie4_5", {"ernie4_5"}, fields, build, standard_names()};

}  // namespace nibble
