// qwen3: Qwen 3 dense models; a norm on every head of queries and keys.
// The head dimension is stated, not derived.
#include "src/model/architecture.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    sliding_fields(f, h, 0);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    return s;
}

}  // namespace

extern const Architecture qwen3_arch;
const Architecture qwen3_arch{"qwen3", {"qwen3"}, fields, build, standard_names()};

}  // namespace nibble
