// gpt-oss: OpenAI's open models; experts in MXFP4 with biases and a limited gate, a learned sink per head, a
// window on every second layer. GGUF files have the feed-forward's norm under the name of the attention's.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm"},
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
    {"model.layers.{}.mlp.router", "blk.{}.ffn_gate_inp"},
    {"model.layers.{}.mlp.experts.gate_up_proj_blocks", "blk.{}.ffn_gate_exps.weight", Storage::alternating},
    {"model.layers.{}.mlp.experts.gate_up_proj_scales", "blk.{}.ffn_gate_exps.weight", Storage::scales},
    {"model.layers.{}.mlp.experts.gate_up_proj_bias", "blk.{}.ffn_gate_exps.bias", Storage::alternating},
    {"model.layers.{}.mlp.experts.down_proj_blocks", "blk.{}.ffn_down_exps.weight"},
    {"model.layers.{}.mlp.experts.down_proj_scales", "blk.{}.ffn_down_exps.weight", Storage::scales},
    {"model.layers.{}.mlp.experts.down_proj_bias", "blk.{}.ffn_down_exps.bias"},
};

constexpr float usual_limit = 7;

void fields(Fields& f, Hyper& h) {
    // GGUF files state neither the limit nor the ends of YaRN's ramp, which are the same for all.
    if (!f.is_writing()) h.ffn_limit = usual_limit, h.rope_scaling.truncate = f.from_hf();
    f.assume("rope_theta", 150000.0f);
    standard_fields(f, h);
    sliding_fields(f, h, 2);
    expert_fields(f, h);
    f.optional("expert_feed_forward_length", "intermediate_size", h.n_ff_expert);
    f.expect("hidden_act", {"silu"});
    f.expect("swiglu_alpha", {"1.702"});
    f.optional("", "swiglu_limit", h.ffn_limit);
    f.expect("quantization_config.quant_method", {"mxfp4"});
    if (f.is_writing() && h.rope_scaling.type == "yarn" && h.rope_scaling.truncate)
        f.fail({ErrorCode::unsupported, "rope_scaling.truncate", "is true, which GGUF cannot state", ""});
    if (f.is_writing() && h.ffn_limit != usual_limit)
        f.fail({ErrorCode::unsupported, "swiglu_limit", "is not 7, which GGUF cannot state", ""});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_experts(s, h, tensors);
    for (LayerSpec& l : s.layers) {
        l.ffn_norm = "post_attention_norm";
        if (auto* moe = std::get_if<MoeFfnSpec>(&l.ffn))
            moe->act = Activation::gelu_quick, moe->limit = h.ffn_limit, moe->up_shift = 1;
    }
    return s;
}

}  // namespace

extern const Architecture gpt_oss_arch;
const Architecture gpt_oss_arch{"gpt-oss", {"gpt_oss"}, fields, build, standard_names(), false, names};

}  // namespace nibble
