// A dense feed-forward and experts side by side, each between norms of its own; the router sees the residual
// stream through another (Gemma 4).
#include "src/model/forward.h"

namespace nibble {

// x + norm(norm(dense(norm(x))) + norm(experts(norm(x)))).
Ref ffn_block(Forward& f, const TwinFfnSpec& s, Ref x, Ref residual) {
    Builder& b = f.builder();
    const int64_t width = f.spec().n_embd;
    const Ref y = dense_hidden(f, s.dense, f.norm(x, f.layer_spec().ffn_norm));
    f.label("ffn_down");
    const Ref dense = matmul(b, f.matrix("ffn_down.weight", width, s.dense.n_ff), y);
    const Ref beside = f.norm(dense, "post_ffw_norm_1");

    f.label("ffn_gate_inp");
    const Ref seen = norm(b, x, f.vector("ffn_gate_inp.scale", width), {f.spec().norm_eps});
    const Ref routes = expert_routes(f, s.experts, seen);
    const Ref outputs = expert_outputs(f, s.experts, f.norm(x, "pre_ffw_norm_2"), routes);
    f.label("ffn_moe_sum");
    const Ref chosen = moe_sum(b, outputs, routes);
    return f.join(residual, f.norm(chosen, "post_ffw_norm_2", beside), "post_ffw_norm");
}

}  // namespace nibble
