// State space mixer (Mamba-2): norm, gate, inputs and time steps in one product, short convolution, scan,
// gate, norm, output. Shapes: I = n_heads * v_dim, x [T x n_embd], projected [T x 2 I + 2 n_groups * k_dim +
// n_heads].
#include "src/model/forward.h"

namespace nibble {

Ref mixer_block(Forward& f, const Mamba2Spec& m, Ref x) {
    Builder& b = f.builder();
    const int64_t inner = m.inner_cols(), conv_cols = m.conv_cols();
    const Ref h = f.block_input(x, "attn_norm");
    f.label("ssm_in");
    const Ref projected =
        matmul(b, f.matrix("ssm_in.weight", inner + conv_cols + m.n_heads, f.spec().n_embd), h);
    f.label("ssm_conv1d");
    const AttentionBatch batch = f.batch(m.kv_group);
    const Ref inputs =
        causal_conv(b, b.columns(projected, inner, conv_cols),
                    f.taps("ssm_conv1d.weight", conv_cols, m.n_taps), f.k_cache(f.layer()), batch,
                    {m.n_taps, Activation::silu}, f.optional_vector("ssm_conv1d.bias", conv_cols));
    f.label("ssm_scan");
    Ref y =
        ssm_scan(b, inputs, b.columns(projected, inner + conv_cols, m.n_heads), f.vector("ssm_a", m.n_heads),
                 f.vector("ssm_dt.bias", m.n_heads), f.vector("ssm_d", m.n_heads), f.v_cache(f.layer()),
                 batch, {m.n_groups, m.n_heads, m.k_dim, m.v_dim});
    y = f.keep_output_rows(y);
    x = f.keep_output_rows(x);
    f.label("ssm_norm");
    y = glu(b, f.keep_output_rows(b.columns(projected, 0, inner)), y, {Activation::silu});
    NormParams p{f.spec().norm_eps};
    if (m.group_norm) p.group = static_cast<int32_t>(inner) / m.n_groups, p.by_column = true;
    y = norm(b, y, f.vector("ssm_norm.weight", inner), p);
    return f.project(y, "ssm_out", x, "post_attention_norm");
}

}  // namespace nibble
