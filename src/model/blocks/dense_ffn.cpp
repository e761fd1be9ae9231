// Dense feed-forward: norm, gate and up in one product, activation, down, residual.
// Shapes: x [T x n_embd], gate_up [T x 2 n_ff].
#include "src/model/forward.h"

namespace nibble {

Ref dense_ffn_block(Forward& f, const DenseFfnSpec& s, Ref x) {
    Builder& b = f.builder();
    const int64_t width = f.spec().n_embd, n_ff = s.n_ff;
    const Ref h = f.norm(x, "ffn_norm");

    f.label("ffn_gate_up");
    const Ref weights[] = {f.matrix("ffn_gate.weight", n_ff, width), f.matrix("ffn_up.weight", n_ff, width)};
    const Ref biases[] = {f.optional_vector("ffn_gate.bias", n_ff), f.optional_vector("ffn_up.bias", n_ff)};
    const Ref gate_up = matmul(b, weights, h, {{}, biases});
    f.label("ffn_act");
    const Ref y = glu(b, gate_up, {s.act});

    f.label("ffn_down");
    const Ref bias[] = {f.optional_vector("ffn_down.bias", width)};
    return matmul(b, f.matrix("ffn_down.weight", width, n_ff), y, {x, bias});
}

}  // namespace nibble
