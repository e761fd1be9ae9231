// Attention mixer: norm, q/k/v, per-head norms where present, rotation and store, attention, output.
// Shapes: x [T x n_embd], qkv [T x (n_heads + n_kv_heads) * head_dim + n_kv_heads * v_head_dim].
#include "src/model/forward.h"

namespace nibble {

Ref attention_block(Forward& f, const AttentionSpec& a, Ref x) {
    Builder& b = f.builder();
    const int64_t width = f.spec().n_embd, q_cols = int64_t{a.n_heads} * a.head_dim,
                  k_cols = int64_t{a.n_kv_heads} * a.head_dim, v_cols = int64_t{a.n_kv_heads} * a.v_head_dim;
    const Ref h = f.norm(x, "attn_norm");

    f.label("attn_qkv");
    const Ref weights[] = {f.matrix("attn_q.weight", q_cols, width), f.matrix("attn_k.weight", k_cols, width),
                           f.matrix("attn_v.weight", v_cols, width)};
    const Ref biases[] = {f.optional_vector("attn_q.bias", q_cols), f.optional_vector("attn_k.bias", k_cols),
                          f.optional_vector("attn_v.bias", v_cols)};
    const Ref qkv = matmul(b, weights, h, {{}, biases});
    Ref q = b.columns(qkv, 0, q_cols), k = b.columns(qkv, q_cols, k_cols);
    const Ref v = b.columns(qkv, q_cols + k_cols, v_cols);

    const NormParams per_head{f.spec().norm_eps, a.head_dim, false};
    if (const Ref w = f.optional_vector("attn_q_norm.weight", a.head_dim)) q = norm(b, q, w, per_head);
    if (const Ref w = f.optional_vector("attn_k_norm.weight", a.head_dim)) k = norm(b, k, w, per_head);

    f.label("rope_store");
    const auto layer = static_cast<size_t>(f.layer());
    const Ref k_cache = b.cache(f.kv().k[layer], "k_cache"), v_cache = b.cache(f.kv().v[layer], "v_cache");
    RopeStoreParams store{a.n_heads, a.n_kv_heads,     a.head_dim,     a.v_head_dim,
                          0,         f.kv().page_size, RopeStyle::half};
    if (a.rope >= 0) {
        const RopeSpec& rope = f.spec().ropes[static_cast<size_t>(a.rope)];
        store.rot_dim = rope.rot_dim;
        store.style = rope.style;
    }
    if (f.kv().rotate_keys) store.hadamard = a.head_dim & -a.head_dim;  // the largest power of two
    q = rope_store(b, {q, k, v}, f.rope(a.rope), f.slots(a.kv_group), k_cache, v_cache, store);

    f.label("attention");
    const AttentionParams p{a.n_heads,        a.n_kv_heads, a.head_dim, a.v_head_dim,
                            f.kv().page_size, a.window,     a.scale,    a.softcap};
    Ref y = attention(b, q, k_cache, v_cache, f.attention_batch(a.kv_group), p,
                      f.optional_vector("attn_sinks.weight", a.n_heads));
    y = f.keep_output_rows(y);
    x = f.keep_output_rows(x);

    f.label("attn_output");
    const Ref bias[] = {f.optional_vector("attn_output.bias", width)};
    return matmul(b, f.matrix("attn_output.weight", width, int64_t{a.n_heads} * a.v_head_dim), y, {x, bias});
}

}  // namespace nibble
