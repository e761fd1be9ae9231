// llama: Llama 2 and 3, TinyLlama, SmolLM2, R1 distillates; pre-norm, grouped queries, SwiGLU.
// Biases are present where their tensors are; GGUF files hold permuted query and key rows.
#include <cmath>

#include "src/model/architecture.h"
#include "src/model/rope.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    f.expect("hidden_act", {"silu"});
    f.expect("pretraining_tp", {"1"});
    f.expect("quantization_config", {});
}

Result<std::vector<float>> stored_factors(const TensorMap& tensors) {
    const auto it = tensors.find("rope_freqs.weight");
    std::vector<float> factors;
    if (it == tensors.end()) return factors;
    const TensorInfo& t = *it->second;
    if (t.type != Type::f32 || t.foreign() || t.rows() != 1)
        return Error{ErrorCode::corrupt, t.name, "must be one row of f32", ""};
    factors.resize(static_cast<size_t>(t.cols()));
    info(t.type).decode(t.data.data(), factors.data(), factors.size());
    return factors;
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    ModelSpec s;
    s.n_vocab = static_cast<int32_t>(h.n_vocab);
    s.n_embd = static_cast<int32_t>(h.n_embd);
    s.n_ctx_train = static_cast<int32_t>(h.n_ctx);
    s.norm_eps = h.norm_eps;
    s.kv_groups = {{}};
    const std::vector<float> factors = NIBBLE_TRY(stored_factors(tensors));
    const RopeStyle style = from_hf ? RopeStyle::half : RopeStyle::adjacent;
    s.ropes = {NIBBLE_TRY(make_rope(h, static_cast<int32_t>(h.rope_dim), style, factors))};

    AttentionSpec a;
    a.n_heads = static_cast<int32_t>(h.n_heads);
    a.n_kv_heads = static_cast<int32_t>(h.n_kv_heads);
    a.head_dim = static_cast<int32_t>(h.head_dim);
    a.v_head_dim = static_cast<int32_t>(h.v_head_dim);
    a.scale = 1 / std::sqrt(static_cast<float>(h.head_dim));
    s.layers.assign(h.n_layers, {a, DenseFfnSpec{static_cast<int32_t>(h.n_ff), Activation::silu}});
    return s;
}

}  // namespace

extern const Architecture llama_arch;
const Architecture llama_arch{"llama", {"llama"}, fields, build, standard_names(), true};

}  // namespace nibble
