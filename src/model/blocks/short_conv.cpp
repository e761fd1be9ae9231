// Short convolution mixer: norm, projection to two gates and an input, convolution, output.
// Shapes: x [T x n_embd], projected [T x 3 n_embd] as b, c, input.
#include "src/model/forward.h"

namespace nibble {

Ref mixer_block(Forward& f, const ShortConvSpec& s, Ref x) {
    Builder& b = f.builder();
    const int64_t width = f.spec().n_embd;
    const Ref h = f.block_input(x, "attn_norm");
    f.label("shortconv.in_proj");
    const Ref bias[] = {f.optional_vector("shortconv.in_proj.bias", 3 * width)};
    const Ref projected = matmul(b, f.matrix("shortconv.in_proj.weight", 3 * width, width), h, {{}, bias});

    f.label("shortconv.conv");
    const GluParams product{Activation::none};
    const Ref input = glu(b, b.columns(projected, 0, width), b.columns(projected, 2 * width, width), product);
    const Ref state = f.k_cache(f.layer());
    const Ref y =
        causal_conv(b, input, f.taps("shortconv.conv.weight", width, s.n_taps), state, f.batch(s.kv_group),
                    {s.n_taps, Activation::none}, f.optional_vector("shortconv.conv.bias", width));
    const Ref gated = glu(b, b.columns(projected, width, width), y, product);
    return f.project(f.keep_output_rows(gated), "shortconv.out_proj", f.keep_output_rows(x),
                     "post_attention_norm");
}

}  // namespace nibble
