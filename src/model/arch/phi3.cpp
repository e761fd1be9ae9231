// phi3: Phi-3, 3.5 and 4 including mini; fused projections, partial rotation, factors for long contexts.
// Both fused tensors stay fused: the order of their rows is that of the products.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.self_attn.qkv_proj", "blk.{}.attn_qkv"},
    {"model.layers.{}.mlp.gate_up_proj", "blk.{}.ffn_up"},
};

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    sliding_fields(f, h, 0);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    return standard_spec(h, RopeStyle::half, tensors);
}

}  // namespace

extern const Architecture phi3_arch;
const Architecture phi3_arch{"phi3", {"phi3"}, fields, build, standard_names(), false, names};

}  // namespace nibble
