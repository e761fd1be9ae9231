// qwen2: Qwen 2 and 2.5, R1 distillates of them; biases on queries, keys and values.
// A window, where config.json switches it on, holds for the layers it names.
#include "src/model/architecture.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    f.assume("use_sliding_window", false);
    sliding_fields(f, h, 0);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    return standard_spec(h, RopeStyle::half, tensors);
}

}  // namespace

extern const Architecture qwen2_arch;
const Architecture qwen2_arch{"qwen2", {"qwen2"}, fields, build, standard_names()};

}  // namespace nibble
