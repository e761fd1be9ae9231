// cohere2moe: North Mini Code; as cohere2 with experts, of whose sum and the shared ones' output a layer
// takes the mean. The first layers are dense and rotate whatever they see; norms may be RMS norms.
#include <algorithm>

#include "src/model/arch/cohere.h"

namespace nibble {
namespace {

// Which layers slide, where config.json lists none: dense ones have a pattern of their own.
void pattern_fields(Fields& f, Hyper& h) {
    stated_sliding_fields(f, h, 4);
    if (f.from_hf() && !f.states("", "layer_types")) {
        uint32_t period = 4;
        f.optional("", "sliding_window_pattern", period);
        for (uint32_t i = 0; i < h.sliding.size(); ++i)
            h.sliding[i] = i >= h.n_dense_layers && period > 0 && (i - h.n_dense_layers + 1) % period != 0;
    }
    if (h.n_dense_layers > 0) f.expect("prefix_dense_sliding_window_pattern", {"1"});
    if (f.is_writing()) return;
    h.rotated = h.sliding;
    std::fill_n(h.rotated.begin(), std::min(size_t{h.n_dense_layers}, h.rotated.size()), true);
}

void choice_fields(Fields& f, Hyper& h) {
    std::string choice = f.from_hf() ? "softmax" : "sigmoid";
    f.optional("", "expert_selection_fn", choice);
    f.expect("expert_selection_fn", {"softmax", "sigmoid"});
    if (!f.is_writing()) h.gating = choice == "sigmoid" ? Gating::sigmoid : Gating::softmax;
    gating_fields(f, h);
    // Softmax is of the chosen ones alone.
    if (f.is_writing() || h.gating == Gating::sigmoid)
        f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
}

void fields(Fields& f, Hyper& h) {
    next_layer_fields(f, h);
    if (!f.is_writing()) h.layer_norm = !f.states("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    cohere_fields(f, h);
    expert_fields(f, h);
    choice_fields(f, h);
    dense_fields(f, h, "first_k_dense_replace");
    pattern_fields(f, h);
    if (f.from_hf()) h.n_ff_expert = h.n_ff;
    f.optional("expert_feed_forward_length", "", h.n_ff_expert);
    f.optional("", "prefix_dense_intermediate_size", h.n_ff);
    f.optional("expert_shared_count", "num_shared_experts", h.n_experts_shared);
    h.n_ff_shared = h.n_experts_shared * std::min(h.n_ff_expert, max_width);
    f.optional("expert_shared_feed_forward_length", "", h.n_ff_shared);
    if (h.n_experts_shared > 0) f.expect("shared_expert_combination_strategy", {"average"});
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(cohere_spec(h, from_hf, tensors));
    set_experts(s, h, tensors);
    for (LayerSpec& l : s.layers)
        if (auto* moe = std::get_if<MoeFfnSpec>(&l.ffn); moe && moe->n_ff_shared > 0)
            moe->scale *= 0.5f, moe->shared_scale = 0.5f;
    return s;
}

}  // namespace

extern const Architecture cohere2moe_arch;
const Architecture cohere2moe_arch{"cohere2moe", {"cohere2_moe"}, fields, build, standard_names()};

}  // namespace nibble
