// hunyuan-dense: Hunyuan 0.5B to 7B and Hunyuan-MT; llama with a norm on every head of queries and keys that
// stands behind the rotation, whose base grows with a stated alpha.
#include <algorithm>
#include <cmath>

#include "ggml/base/cat.h"
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.self_attn.query_layernorm", "blk.{}.attn_q_norm"},
    {"model.layers.{}.self_attn.key_layernorm", "blk.{}.attn_k_norm"},
};

// What config.json calls dynamic does not depend on the length of a text: it is a base, which GGUF states.
void alpha_fields(Fields& f, Hyper& h) {
    float alpha = 0;
    f.optional("", "rope_scaling.alpha|rope_parameters.alpha", alpha);
    if (h.rope_scaling.type != "dynamic" || alpha == 0) return;
    const double dim = h.head_dim > 0 ? h.head_dim : h.n_embd / std::max(1u, h.n_heads);
    if (dim <= 2) return f.fail({ErrorCode::corrupt, "head_dim", cat(dim, " leaves nothing to rotate"), ""});
    h.rope_theta *= static_cast<float>(std::pow(static_cast<double>(alpha), dim / (dim - 2)));
    h.rope_scaling.type = "none";
}

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    alpha_fields(f, h);
    f.expect("hidden_act", {"silu"});
    f.expect("use_qk_norm", {"true"});
    f.expect("use_cla", {"false"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    for (LayerSpec& l : s.layers) std::get<AttentionSpec>(l.mixer).rope_before_norm = true;
    return s;
}

}  // namespace

extern const Architecture hunyuan_dense_arch;
const Architecture hunyuan_dense_arch{
    "hunyuan-dense", {"hunyuan_v1_dense"}, fields, build, standard_names(), false, names};

}  // namespace nibble
