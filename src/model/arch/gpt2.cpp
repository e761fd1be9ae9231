// gpt2: GPT-2 and its descendants; learned positions, LayerNorm, fused and transposed projections.
// Checkpoints exist with and without the prefix "transformer.".
#include <algorithm>

#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"},
    {"transformer.ln_f", "output_norm"},
    {"transformer.h.{}.ln_1", "blk.{}.attn_norm"},
    {"transformer.h.{}.attn.c_attn", "blk.{}.attn_qkv", Storage::transposed},
    {"transformer.h.{}.attn.c_proj", "blk.{}.attn_output", Storage::transposed},
    {"transformer.h.{}.ln_2", "blk.{}.ffn_norm"},
    {"transformer.h.{}.mlp.c_fc", "blk.{}.ffn_up", Storage::transposed},
    {"transformer.h.{}.mlp.c_proj", "blk.{}.ffn_down", Storage::transposed},
    {"transformer.h.{}.attn", ""},  // the causal mask
    {"transformer.h.{}.attn.masked_bias", ""},
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"ln_f", "output_norm"},
    {"h.{}.ln_1", "blk.{}.attn_norm"},
    {"h.{}.attn.c_attn", "blk.{}.attn_qkv", Storage::transposed},
    {"h.{}.attn.c_proj", "blk.{}.attn_output", Storage::transposed},
    {"h.{}.ln_2", "blk.{}.ffn_norm"},
    {"h.{}.mlp.c_fc", "blk.{}.ffn_up", Storage::transposed},
    {"h.{}.mlp.c_proj", "blk.{}.ffn_down", Storage::transposed},
    {"h.{}.attn", ""},
    {"h.{}.attn.masked_bias", ""},
};

void fields(Fields& f, Hyper& h) {
    h.layer_norm = true;
    if (f.from_hf()) f.required("", "n_embd", h.n_embd);
    f.assume("intermediate_size", 4 * std::min(h.n_embd, max_width));
    size_fields(f, h);
    f.expect("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
    f.expect("scale_attn_weights", {"true"});
    f.expect("scale_attn_by_inverse_layer_idx", {"false"});
    f.expect("quantization_config", {});
    h.rotated.assign(std::min(h.n_layers, max_layers), false);
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    s.n_positions = static_cast<int32_t>(h.n_ctx);
    set_dense_ffn(s, Activation::gelu_tanh, false);
    return s;
}

}  // namespace

extern const Architecture gpt2_arch;
const Architecture gpt2_arch{"gpt2", {"gpt2"}, fields, build, standard_names(), false, names};

}  // namespace nibble
