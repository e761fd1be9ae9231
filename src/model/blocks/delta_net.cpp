// Linear attention mixer: norm, q/k/v and gate, short convolution, gated delta rule, norm per head, gate,
// output. Shapes: x [T x n_embd], qkv [T x 2 n_k_heads * k_dim + n_v_heads * v_dim], z [T x n_v_heads *
// v_dim].
#include <array>

#include "src/model/forward.h"

namespace nibble {

Ref mixer_block(Forward& f, const DeltaNetSpec& d, Ref x) {
    Builder& b = f.builder();
    const int64_t width = f.spec().n_embd, conv_cols = d.conv_cols(), value_cols = d.value_cols();
    const Ref h = f.block_input(x, "attn_norm");
    f.label("attn_qkv_gate");
    const Ref weights[] = {f.matrix("attn_qkv.weight", conv_cols, width),
                           f.matrix("attn_gate.weight", value_cols, width)};
    const Ref both = matmul(b, weights, h);
    f.label("ssm_beta_alpha");
    const bool in_groups = f.has("ssm_ba.weight");  // of the value heads of a key head
    const Ref gates = in_groups ? matmul(b, f.matrix("ssm_ba.weight", 2 * int64_t{d.n_v_heads}, width), h)
                                : matmul(b,
                                         std::array{f.matrix("ssm_beta.weight", d.n_v_heads, width),
                                                    f.matrix("ssm_alpha.weight", d.n_v_heads, width)},
                                         h);

    f.label("ssm_conv1d");
    const AttentionBatch batch = f.batch(d.kv_group);
    const Ref qkv =
        causal_conv(b, b.columns(both, 0, conv_cols), f.taps("ssm_conv1d.weight", conv_cols, d.n_taps),
                    f.k_cache(f.layer()), batch, {d.n_taps, Activation::silu});
    f.label("delta_rule");
    Ref y = delta_rule(
        b, qkv, gates, f.vector("ssm_a", d.n_v_heads), f.vector("ssm_dt.bias", d.n_v_heads),
        f.v_cache(f.layer()), batch,
        {d.n_k_heads, d.n_v_heads, d.k_dim, d.v_dim, d.tiled, in_groups ? d.n_v_heads / d.n_k_heads : 0});
    y = f.keep_output_rows(y);
    x = f.keep_output_rows(x);
    f.label("ssm_norm");
    y = norm(b, y, f.vector("ssm_norm.weight", d.v_dim), {f.spec().norm_eps, d.v_dim});
    y = glu(b, f.keep_output_rows(b.columns(both, conv_cols, value_cols)), y, {Activation::silu});
    return f.project(y, "ssm_out", x, "post_attention_norm");
}

}  // namespace nibble
