// starcoder2: StarCoder 2; LayerNorm, biases, a feed-forward without a gate, a window on every layer.
// Rotation in halves; tied output.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.mlp.c_fc", "blk.{}.ffn_up"},
    {"model.layers.{}.mlp.c_proj", "blk.{}.ffn_down"},
};

void fields(Fields& f, Hyper& h) {
    h.layer_norm = true;
    standard_fields(f, h);
    sliding_fields(f, h, 0);
    f.expect("hidden_act", {"gelu_pytorch_tanh"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_dense_ffn(s, Activation::gelu_tanh, false);
    return s;
}

}  // namespace

extern const Architecture starcoder2_arch;
const Architecture starcoder2_arch{"starcoder2",     {"starcoder2"}, fields, build,
                                   standard_names(), false,          names};

}  // namespace nibble
