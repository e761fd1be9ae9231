// seed_oss: Seed-OSS; llama with biases on q, k and v. GGUF files have the feed-forward's norm under the name
// of the attention's.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm"},
};

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    for (LayerSpec& l : s.layers) l.ffn_norm = "post_attention_norm";
    return s;
}

}  // namespace

extern const Architecture seed_oss_arch;
const Architecture seed_oss_arch{"seed_oss", {"seed_oss"}, fields, build, standard_names(), false, names};

}  // namespace nibble
