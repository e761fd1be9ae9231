// Mixture of experts: norm, router, gate and up of the chosen experts, activation, down, weighted sum.
// Shapes: x [T x n_embd], gate_up [T x 2 n_used n_ff], the experts' outputs [T x n_used n_embd].
#include <vector>

#include "ggml/base/cat.h"
#include "src/model/forward.h"

namespace nibble {
namespace {

// The expert that every token passes; absent when the model has none.
Ref shared_expert(Forward& f, const MoeFfnSpec& s, Ref h) {
    if (s.n_ff_shared == 0) return {};
    Builder& b = f.builder();
    const int64_t width = f.spec().n_embd, n_ff = s.n_ff_shared;
    f.label(s.gated ? "ffn_gate_up_shexp" : "ffn_up_shexp");
    const Ref up = f.matrix("ffn_up_shexp.weight", n_ff, width);
    Ref y;
    if (s.gated) {
        const Ref weights[] = {f.matrix("ffn_gate_shexp.weight", n_ff, width), up};
        y = glu(b, matmul(b, weights, h), {s.act});
    } else {
        y = activate(b, matmul(b, up, h), {s.act, 1, 1});
    }
    f.label("ffn_down_shexp");
    y = matmul(b, f.matrix("ffn_down_shexp.weight", width, n_ff), y);
    return s.shared_scale == 1 ? y : activate(b, y, {Activation::none, 1, s.shared_scale});
}

// The experts' sum where they see their input compressed, and beside them the shared one, which does not.
Ref through_latent(Forward& f, const MoeFfnSpec& s, Ref h, Ref routes) {
    Builder& b = f.builder();
    const int64_t width = f.spec().n_embd;
    f.label("ffn_latent_down");
    const Ref latent = matmul(b, f.matrix("ffn_latent_down.weight", s.latent_dim, width), h);
    const Ref outputs = expert_outputs(f, s, latent, routes);
    const Ref shared = shared_expert(f, s, h);
    f.label("ffn_moe_sum");
    const Ref sum = moe_sum(b, outputs, routes);
    f.label("ffn_latent_up");
    return matmul(b, f.matrix("ffn_latent_up.weight", width, s.latent_dim), sum, {shared});
}

}  // namespace

Ref expert_routes(Forward& f, const MoeFfnSpec& s, Ref h) {
    Builder& b = f.builder();
    f.label("ffn_gate_inp");
    const Ref bias[] = {f.optional_vector("ffn_gate_inp.bias", s.n_experts)};
    Ref logits = matmul(b, f.matrix("ffn_gate_inp.weight", s.n_experts, f.spec().n_embd), h, {{}, bias});
    if (s.router_scale != 1) logits = activate(b, logits, {Activation::none, 1, s.router_scale});
    return moe_route(b, logits, {s.n_used, s.normalize, s.gating, s.n_groups, s.n_groups_used, s.scale},
                     f.optional_vector("exp_probs_b.bias", s.n_experts),
                     f.optional_vector("ffn_down_exps.scale", s.n_experts));
}

Ref expert_outputs(Forward& f, const MoeFfnSpec& s, Ref h, Ref routes) {
    Builder& b = f.builder();
    const int64_t width = b.value(h).cols;
    const MoeMatmulParams p{s.n_experts, s.n_used};
    f.label(s.gated ? "ffn_gate_up_exps" : "ffn_up_exps");
    std::vector<Ref> weights, biases;
    const auto add = [&](std::string_view name) {
        weights.push_back(f.experts(cat(name, ".weight"), s.n_experts, s.n_ff, width));
        biases.push_back(f.optional_vector(cat(name, ".bias"), int64_t{s.n_experts} * s.n_ff));
    };
    if (s.gated) add("ffn_gate_exps");
    add("ffn_up_exps");
    const Ref hidden = moe_matmul(b, weights, h, routes, p, biases);
    const Ref y = s.gated ? glu(b, hidden, {s.act, s.limit, s.up_shift}) : activate(b, hidden, {s.act, 1, 1});
    f.label("ffn_down_exps");
    const Ref down[] = {f.experts("ffn_down_exps.weight", s.n_experts, width, s.n_ff)};
    const Ref down_bias[] = {f.optional_vector("ffn_down_exps.bias", int64_t{s.n_experts} * width)};
    return moe_matmul(b, down, y, routes, p, down_bias);
}

Ref ffn_block(Forward& f, const MoeFfnSpec& s, Ref x, Ref residual) {
    Builder& b = f.builder();
    const Ref h = f.block_input(x, f.layer_spec().ffn_norm);
    const Ref routes = expert_routes(f, s, h);
    if (s.latent_dim > 0) return f.join(residual, through_latent(f, s, h, routes), "post_ffw_norm");
    // Before the others, whose sum can then follow their products at once.
    const Ref shared = shared_expert(f, s, h);
    f.label("ffn_gate_inp_shexp");
    const bool gated = shared && f.has("ffn_gate_inp_shexp.weight");
    const Ref gate = gated ? matmul(b, f.matrix("ffn_gate_inp_shexp.weight", 1, f.spec().n_embd), h) : Ref{};
    const Ref outputs = expert_outputs(f, s, h, routes);
    f.label("ffn_moe_sum");
    return f.join(residual, moe_sum(b, outputs, routes, shared, gate), "post_ffw_norm");
}

}  // namespace nibble
