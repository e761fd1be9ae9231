// Mixture of experts: norm, router, gate and up of the chosen experts, activation, down, weighted sum.
// Shapes: x [T x n_embd], gate_up [T x 2 n_used n_ff], the experts' outputs [T x n_used n_embd].
#include "src/model/forward.h"

namespace nibble {
namespace {

// The expert that every token passes; absent when the model has none.
Ref shared_expert(Forward& f, const MoeFfnSpec& s, Ref h) {
    if (s.n_ff_shared == 0) return {};
    Builder& b = f.builder();
    const int64_t width = f.spec().n_embd, n_ff = s.n_ff_shared;
    f.label("ffn_gate_up_shexp");
    const Ref weights[] = {f.matrix("ffn_gate_shexp.weight", n_ff, width),
                           f.matrix("ffn_up_shexp.weight", n_ff, width)};
    const Ref y = glu(b, matmul(b, weights, h), {s.act});
    f.label("ffn_down_shexp");
    return matmul(b, f.matrix("ffn_down_shexp.weight", width, n_ff), y);
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
    const int64_t width = f.spec().n_embd;
    const MoeMatmulParams p{s.n_experts, s.n_used};
    f.label("ffn_gate_up_exps");
    const Ref weights[] = {f.experts("ffn_gate_exps.weight", s.n_experts, s.n_ff, width),
                           f.experts("ffn_up_exps.weight", s.n_experts, s.n_ff, width)};
    const Ref biases[] = {f.optional_vector("ffn_gate_exps.bias", int64_t{s.n_experts} * s.n_ff),
                          f.optional_vector("ffn_up_exps.bias", int64_t{s.n_experts} * s.n_ff)};
    const Ref y = glu(b, moe_matmul(b, weights, h, routes, p, biases), {s.act, s.limit, s.up_shift});
    f.label("ffn_down_exps");
    const Ref down[] = {f.experts("ffn_down_exps.weight", s.n_experts, width, s.n_ff)};
    const Ref down_bias[] = {f.optional_vector("ffn_down_exps.bias", int64_t{s.n_experts} * width)};
    return moe_matmul(b, down, y, routes, p, down_bias);
}

Ref ffn_block(Forward& f, const MoeFfnSpec& s, Ref x, Ref residual) {
    Builder& b = f.builder();
    const Ref h = f.block_input(x, f.layer_spec().ffn_norm);
    const Ref routes = expert_routes(f, s, h);
    const Ref outputs = expert_outputs(f, s, h, routes);
    const Ref shared = shared_expert(f, s, h);
    f.label("ffn_gate_inp_shexp");
    const bool gated = shared && f.has("ffn_gate_inp_shexp.weight");
    const Ref gate = gated ? matmul(b, f.matrix("ffn_gate_inp_shexp.weight", 1, f.spec().n_embd), h) : Ref{};
    f.label("ffn_moe_sum");
    return f.join(residual, moe_sum(b, outputs, routes, shared, gate), "post_ffw_norm");
}

}  // namespace nibble
