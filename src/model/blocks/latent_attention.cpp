// Latent attention mixer, in the absorbed form: norm, queries and the latent, rotation and store, one KV head
// for all queries, the heads' values out of the latent, output.
// Shapes: x [T x n_embd], q [T x n_heads * (nope + rope)], stored key [rope | latent], its latent the value.
#include "src/model/forward.h"

namespace nibble {
namespace {

struct Projections {
    Ref q, kv;  // kv: [latent | rope]
};

Ref latent_norm(Forward& f, const LatentAttentionSpec& a, Ref x, std::string_view name) {
    f.label(name.substr(0, name.rfind('.')));
    return norm(f.builder(), x, f.vector(name, f.builder().value(x).cols), {a.norm_eps});
}

// Queries are projected from x, or from a compressed and normed form of it.
Projections project(Forward& f, const LatentAttentionSpec& a, Ref h) {
    Builder& b = f.builder();
    const int64_t width = f.spec().n_embd, q_cols = int64_t{a.n_heads} * a.head_dim();
    const bool compressed = f.has("attn_q_a.weight");
    const int64_t first = compressed ? f.rows("attn_q_a.weight") : q_cols;
    f.label(compressed ? "attn_qkv_a" : "attn_q_kv_a");
    const Ref weights[] = {f.matrix(compressed ? "attn_q_a.weight" : "attn_q.weight", first, width),
                           f.matrix("attn_kv_a_mqa.weight", a.cached_dim(), width)};
    const Ref biases[] = {f.optional_vector(compressed ? "attn_q_a.bias" : "attn_q.bias", first),
                          f.optional_vector("attn_kv_a_mqa.bias", a.cached_dim())};
    const Ref both = matmul(b, weights, h, {{}, biases});
    Ref q = b.columns(both, 0, first);
    if (compressed) {
        q = latent_norm(f, a, q, "attn_q_a_norm.weight");
        f.label("attn_q_b");
        q = matmul(b, f.matrix("attn_q_b.weight", q_cols, first), q);
    }
    return {q, b.columns(both, first, a.cached_dim())};
}

}  // namespace

Ref mixer_block(Forward& f, const LatentAttentionSpec& a, Ref x) {
    Builder& b = f.builder();
    const auto [q, kv] = project(f, a, f.block_input(x, "attn_norm"));
    const Ref latent = latent_norm(f, a, b.columns(kv, 0, a.latent_dim), "attn_kv_a_norm.weight");

    f.label("attn_k_b");
    const MoeMatmulParams per_head{a.n_heads, a.n_heads};
    const Ref k_b[] = {f.experts("attn_k_b.weight", a.n_heads, a.latent_dim, a.nope_dim)};
    const Ref plain = splice_heads(b, q, {a.n_heads, 0, a.nope_dim});
    const Ref absorbed = moe_matmul(b, k_b, plain, {}, per_head);

    // What rotates comes first, as rope_store wants it.
    f.label("rope_store");
    const Ref query = splice_heads(b, q, {a.n_heads, a.nope_dim, a.rope_dim}, absorbed);
    const Ref key = splice_heads(b, kv, {1, a.latent_dim, a.rope_dim}, latent);
    const Ref cache = f.k_cache(f.layer());
    const RopeSpec& rope = f.spec().ropes[static_cast<size_t>(a.rope)];
    const RopeStoreParams store{a.n_heads, 1, a.cached_dim(), 0, rope.rot_dim, f.kv().page_size, rope.style};
    Ref rotated = rope_store(b, {query, key, {}}, f.rope(a.rope), f.slots(a.kv_group), cache, {}, store);
    const AttentionBatch batch = f.batch(a.kv_group);
    if (a.query_scale.beta != 0) rotated = scale_by_position(b, rotated, batch.positions, a.query_scale);

    f.label("attention");
    const Ref values = b.columns(cache, a.rope_dim, a.latent_dim);
    const AttentionParams p{a.n_heads, 1, a.cached_dim(), a.latent_dim, f.kv().page_size, 0, a.scale, 0};
    Ref y = attention(b, rotated, cache, values, batch, p);
    y = f.keep_output_rows(y);
    x = f.keep_output_rows(x);

    f.label("attn_v_b");
    const Ref v_b[] = {f.experts("attn_v_b.weight", a.n_heads, a.v_head_dim, a.latent_dim)};
    return f.project(moe_matmul(b, v_b, y, {}, per_head), "attn_output", x, "post_attention_norm");
}

}  // namespace nibble
