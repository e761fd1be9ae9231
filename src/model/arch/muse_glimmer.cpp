// muse-glimmer: Muse Glimmer (text); norms around the blocks and of the embedding, a gate on the output of
// attention, queries and keys behind a norm without a weight. Layers that see all do not rotate.
// GGUF files hold permuted query and key rows, and the factor of queries as weights of their norm.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.input_layernorm", "blk.{}.attn_norm", Storage::offset_one},
    {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm", Storage::offset_one},
    {"model.layers.{}.pre_feedforward_layernorm", "blk.{}.ffn_norm", Storage::offset_one},
    {"model.layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm", Storage::offset_one},
    {"model.layers.{}.self_attn.gate_proj", "blk.{}.attn_gate"},
    {"model.vision_tower.*", ""},
    {"model.vision_adapter.*", ""},
    {"model.vision_projection.*", ""},
};

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    stated_sliding_fields(f, h, 4);
    if (f.from_hf() && !f.states("", "layer_types"))  // counted from the last one
        for (size_t i = 0; i < h.sliding.size(); ++i) h.sliding[i] = (h.sliding.size() - 1 - i) % 4 != 0;
    if (!f.is_writing()) h.rotated = h.sliding;
    if (f.from_hf()) h.query_factor = 3.87f;
    f.optional("", "qk_scale_factor", h.query_factor);
    rotation_fields(f, h);
    if (h.rotated != h.sliding)
        f.fail({ErrorCode::unsupported, "layer_rope_theta",
                "asks for other than the sliding layers to rotate", ""});
    f.required("logit_scale", "output_multiplier", h.logit_scale);
    f.optional("final_logit_softcapping", "final_logit_softcapping", h.logit_softcap);
    f.expect("post_norm_eps", {"1e-08"});
    f.expect("hidden_activation", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, from_hf ? RopeStyle::half : RopeStyle::adjacent, tensors));
    set_qk_norm(s, from_hf ? QkNorm::plain_head : QkNorm::head);
    s.embed_norm = true;
    s.post_norm_eps = 1e-8f;
    s.logit_scale = h.logit_scale;
    for (LayerSpec& l : s.layers) {
        l.post_norm = true;
        if (from_hf) std::get<AttentionSpec>(l.mixer).scale *= h.query_factor;
    }
    return s;
}

}  // namespace

extern const Architecture muse_glimmer_arch;
const Architecture muse_glimmer_arch{
    "muse-glimmer", {"muse_glimmer", "muse_glimmer_text"}, fields, build, standard_names(), true, names};

}  // namespace nibble
