// gemma4-assistant: small models that guess for a Gemma 4; their layers attend to its keys and values and
// have none of their own. What they begin with is its last hidden state beside the embedding of the next
// token.
#include "src/model/arch/gemma4.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm"},
    {"model.layers.{}.pre_feedforward_layernorm", "blk.{}.ffn_norm"},
    {"model.layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm"},
    {"model.layers.{}.layer_scalar", "blk.{}.layer_output_scale.weight"},
    {"pre_projection", "nextn.pre_projection"},
    {"post_projection", "nextn.post_projection"},
    // Which tokens are worth looking at: all are looked at instead, or the first of them.
    {"masked_embedding.centroids", ""},
    {"masked_embedding.token_ordering", ""},
};

void fields(Fields& f, Hyper& h) {
    gemma4_fields(f, h);
    f.required("embedding_length_out", "backbone_hidden_size", h.n_backbone);
    h.n_shared_kv_layers = 0;  // all: with the layers of another model
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(gemma4_spec(h, tensors));
    s.n_backbone = static_cast<int32_t>(h.n_backbone);
    return s;
}

}  // namespace

extern const Architecture gemma4_assistant_arch;
const Architecture gemma4_assistant_arch{"gemma4-assistant",
                                         {"gemma4_assistant", "gemma4_unified_assistant"},
                                         fields,
                                         build,
                                         standard_names(),
                                         false,
                                         names};

}  // namespace nibble
