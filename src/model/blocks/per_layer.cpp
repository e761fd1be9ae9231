// What a token has for each layer beside the residual stream (Gemma 3n and 4): an embedding of its own,
// joined with a projection of the common one; in the layer a gate takes of it what it needs. Shapes: per
// layer P = n_per_layer columns, all layers side by side [T x n_layers * P].
#include <cmath>

#include "src/model/forward.h"

namespace nibble {

// (norm(W x / sqrt(n_embd)) + sqrt(P) * embedding) / sqrt(2); x is the scaled embedding. The norm is of x
// without the division, its eps larger instead.
Ref per_layer_inputs(Forward& f, Ref tokens, Ref x) {
    Builder& b = f.builder();
    const ModelSpec& s = f.spec();
    const int64_t cols = static_cast<int64_t>(s.layers.size()) * s.n_per_layer;
    const float root_half = std::sqrt(0.5f), scale = std::sqrt(static_cast<float>(s.n_per_layer));
    f.label("per_layer_model_proj");
    const Ref projected = matmul(b, f.matrix("per_layer_model_proj.weight", cols, s.n_embd), x);
    f.label("per_layer_proj_norm");
    const Ref normed = norm(b, projected, f.vector("per_layer_proj_norm.weight", s.n_per_layer),
                            {s.norm_eps * static_cast<float>(s.n_embd), s.n_per_layer});
    f.label("per_layer_token_embd");
    const Ref own = embed(b, tokens, f.table("per_layer_token_embd.weight", s.n_vocab, cols),
                          {scale * root_half}, f.drawn());
    return add(b, own, normed, {root_half});
}

// x + norm(V (gelu(W x) * inputs)).
Ref per_layer_block(Forward& f, Ref inputs, Ref x) {
    Builder& b = f.builder();
    const int32_t n = f.spec().n_per_layer;
    f.label("inp_gate");
    const Ref gate = matmul(b, f.matrix("inp_gate.weight", n, f.spec().n_embd), x);
    const Ref mine = f.keep_output_rows(b.columns(inputs, int64_t{f.layer()} * n, n));
    const Ref y = glu(b, gate, mine, {Activation::gelu_tanh});
    f.label("proj");
    return add(b, x, f.norm(matmul(b, f.matrix("proj.weight", f.spec().n_embd, n), y), "post_norm"));
}

}  // namespace nibble
