// Dense feed-forward: norm, gate and up in one product, activation, down, residual.
// Shapes: x [T x n_embd], gate_up [T x 2 n_ff], or up [T x n_ff] where there is no gate.
#include "src/model/forward.h"

namespace nibble {
namespace {

// The up projection; with a gate, that comes first in the same rows.
Ref up(Forward& f, const DenseFfnSpec& s, Ref h) {
    const int64_t width = f.spec().n_embd, n_ff = s.n_ff;
    if (s.gated && f.has("ffn_gate.weight")) {
        const Ref weights[] = {f.matrix("ffn_gate.weight", n_ff, width),
                               f.matrix("ffn_up.weight", n_ff, width)};
        const Ref biases[] = {f.optional_vector("ffn_gate.bias", n_ff),
                              f.optional_vector("ffn_up.bias", n_ff)};
        return matmul(f.builder(), weights, h, {{}, biases});
    }
    const int64_t rows = s.gated ? 2 * n_ff : n_ff;
    const Ref bias[] = {f.optional_vector("ffn_up.bias", rows)};
    return matmul(f.builder(), f.matrix("ffn_up.weight", rows, width), h, {{}, bias});
}

}  // namespace

Ref dense_hidden(Forward& f, const DenseFfnSpec& s, Ref h) {
    f.label(s.gated ? "ffn_gate_up" : "ffn_up");
    const Ref y = up(f, s, h);
    f.label("ffn_act");
    return s.gated ? glu(f.builder(), y, {s.act}) : activate(f.builder(), y, {s.act, 1, 1, s.xielu});
}

Ref ffn_block(Forward& f, const DenseFfnSpec& s, Ref x, Ref residual) {
    const Ref h = f.block_input(x, f.layer_spec().ffn_norm);
    return f.project(dense_hidden(f, s, h), "ffn_down", residual, "post_ffw_norm");
}

}  // namespace nibble
