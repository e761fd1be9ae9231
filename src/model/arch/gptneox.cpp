// gptneox: GPT-NeoX, Pythia and their descendants; LayerNorm, partial rotation, parallel blocks.
// Checkpoints hold queries, keys and values head by head in one matrix.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"gpt_neox.embed_in", "token_embd"},
    {"gpt_neox.final_layer_norm", "output_norm"},
    {"embed_out", "output"},
    {"gpt_neox.layers.{}.input_layernorm", "blk.{}.attn_norm"},
    {"gpt_neox.layers.{}.post_attention_layernorm", "blk.{}.ffn_norm"},
    {"gpt_neox.layers.{}.attention.query_key_value", "blk.{}.attn_qkv", Storage::heads_qkv},
    {"gpt_neox.layers.{}.attention.dense", "blk.{}.attn_output"},
    {"gpt_neox.layers.{}.mlp.dense_h_to_4h", "blk.{}.ffn_up"},
    {"gpt_neox.layers.{}.mlp.dense_4h_to_h", "blk.{}.ffn_down"},
    {"gpt_neox.layers.{}.attention", ""},  // the causal mask
    {"gpt_neox.layers.{}.attention.masked_bias", ""},
};

void fields(Fields& f, Hyper& h) {
    h.layer_norm = true;
    if (f.from_hf()) h.rope_share = 0.25f, h.parallel = true;
    standard_fields(f, h);
    f.optional("use_parallel_residual", "use_parallel_residual", h.parallel);
    f.expect("hidden_act", {"gelu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_dense_ffn(s, Activation::gelu_erf, false);
    return s;
}

}  // namespace

extern const Architecture gptneox_arch;
const Architecture gptneox_arch{"gptneox", {"gpt_neox"}, fields, build, standard_names(), false, names};

}  // namespace nibble
