// arcee: AFM; llama with squared ReLU in place of a gated unit.
// GGUF files hold permuted query and key rows.
#include "src/model/architecture.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    f.expect("hidden_act", {"relu2"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, from_hf ? RopeStyle::half : RopeStyle::adjacent, tensors));
    set_dense_ffn(s, Activation::relu_squared, false);
    return s;
}

}  // namespace

extern const Architecture arcee_arch;
const Architecture arcee_arch{"arcee", {"arcee"}, fields, build, standard_names(), true};

}  // namespace nibble
