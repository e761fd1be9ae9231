// mistral3: Ministral 3; llama with yarn and queries that grow with their position. The text model only.
// GGUF files hold permuted query and key rows, like those of llama.
#include "src/model/architecture.h"
#include "src/model/rope.h"

namespace nibble {
namespace {

// GGUF states the divisor of the rotation's magnitude and takes the dividend's mscale to be 1.
void yarn_fields(Fields& f, RopeScaling& s) {
    if (s.type != "yarn") return;
    f.optional("rope.scaling.yarn_log_multiplier", "", s.mscale_all_dim);
    if (f.from_hf() || s.mscale_all_dim == 0) return;
    const float factor = yarn_magnitude(s.factor, 1) / yarn_magnitude(s.factor, s.mscale_all_dim);
    if (f.is_writing() && s.attention_factor != factor)
        f.fail({ErrorCode::unsupported, "rope_parameters.mscale", "is not 1, which GGUF cannot state", ""});
    s.attention_factor = factor;
}

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    yarn_fields(f, h.rope_scaling);
    sliding_fields(f, h, 0);
    f.optional("attention.temperature_scale", "rope_parameters.llama_4_scaling_beta", h.query_growth);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, from_hf ? RopeStyle::half : RopeStyle::adjacent, tensors));
    const PositionScaleParams scale = NIBBLE_TRY(query_growth(h));
    for (LayerSpec& l : s.layers) std::get<AttentionSpec>(l.mixer).query_scale = scale;
    return s;
}

}  // namespace

extern const Architecture mistral3_arch;
const Architecture mistral3_arch{"mistral3",       {"ministral3"}, fields,     build,
                                 standard_names(), true,           image_names};

}  // namespace nibble
