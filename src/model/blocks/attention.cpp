// Attention mixer: norm, q/k/v, norms of q and k where present, rotation and store, attention, output.
// Shapes: x [T x n_embd], qkv [T x (n_heads + n_kv_heads) * head_dim + n_kv_heads * v_head_dim].
#include "ggml/base/cat.h"
#include "src/model/forward.h"

namespace nibble {
namespace {

// With the gates, which stand behind the queries of their head.
int64_t query_cols(const AttentionSpec& a) { return int64_t{a.n_heads} * a.head_dim * (a.gated ? 2 : 1); }

// Queries, keys and values side by side, from one fused matrix or from three. Those that the layer does not
// have are left out.
Ref project_qkv(Forward& f, const AttentionSpec& a, Ref h) {
    const int64_t width = f.spec().n_embd, q_cols = query_cols(a),
                  k_cols = int64_t{a.n_kv_heads} * a.head_dim, v_cols = int64_t{a.n_kv_heads} * a.v_head_dim;
    f.label("attn_qkv");
    if (a.kv_layer < 0 && f.has("attn_qkv.weight")) {
        const int64_t rows = q_cols + k_cols + v_cols;
        const Ref bias[] = {f.optional_vector("attn_qkv.bias", rows)};
        return matmul(f.builder(), f.matrix("attn_qkv.weight", rows, width), h, {{}, bias});
    }
    std::vector<Ref> weights, biases;
    const auto add = [&](std::string_view name, int64_t rows) {
        weights.push_back(f.matrix(cat(name, ".weight"), rows, width));
        biases.push_back(f.optional_vector(cat(name, ".bias"), rows));
    };
    add("attn_q", q_cols);
    if (a.kv_layer < 0) add("attn_k", k_cols);
    if (a.kv_layer < 0 && !a.keys_are_values) add("attn_v", v_cols);
    return matmul(f.builder(), weights, h, {{}, biases});
}

// What rotates and how; nothing where `rope` is -1.
RopeStoreParams rotation(Forward& f, int32_t rope, int32_t n_heads, int32_t head_dim) {
    RopeStoreParams p{n_heads, 0, head_dim, 0, 0, f.kv().page_size, RopeStyle::half};
    if (rope < 0) return p;
    const RopeSpec& r = f.spec().ropes[static_cast<size_t>(rope)];
    p.rot_dim = r.rot_dim;
    p.style = r.style;
    return p;
}

int32_t heads_of(Forward& f, const AttentionSpec& a, Ref x) {
    return static_cast<int32_t>(f.builder().value(x).cols / a.head_dim);
}

// Norm of queries or keys, and the rotation where that comes first: nothing of it is left to store_keys().
Ref qk_norm(Forward& f, const AttentionSpec& a, Ref x, std::string_view name) {
    if (a.rope_before_norm) {
        f.label("rope");
        const RopeStoreParams p = rotation(f, a.rope, heads_of(f, a, x), a.head_dim);
        x = rope_store(f.builder(), {x, {}, {}}, f.rope(a.rope), {}, {}, {}, p);
    }
    if (a.qk_norm == QkNorm::none) return x;
    f.label(name);
    const bool row = a.qk_norm == QkNorm::row;
    const Ref weight = a.qk_norm == QkNorm::plain_head
                           ? Ref{}
                           : f.vector(cat(name, ".weight"), row ? f.builder().value(x).cols : a.head_dim);
    return norm(f.builder(), x, weight, {f.spec().norm_eps, row ? 0 : a.head_dim, f.spec().layer_norm});
}

}  // namespace

Ref store_keys(Forward& f, const AttentionSpec& a, Ref q, Ref k, Ref v, int32_t cache_layer) {
    Builder& b = f.builder();
    f.label("rope_store");
    const int32_t rope = a.rope_before_norm ? -1 : a.rope;
    RopeStoreParams store = rotation(f, rope, heads_of(f, a, q), a.head_dim);
    if (f.kv().rotate_keys) store.hadamard = a.head_dim & -a.head_dim;  // the largest power of two
    if (!k) return rope_store(b, {q, {}, {}}, f.rope(rope), {}, {}, {}, store);
    store.n_kv_heads = a.n_kv_heads;
    store.v_head_dim = a.v_head_dim;
    return rope_store(b, {q, k, v}, f.rope(rope), f.slots(a.kv_group), f.k_cache(cache_layer),
                      f.v_cache(cache_layer), store);
}

void read_block(Forward& f, const AttentionSpec& a, Ref h) {
    Builder& b = f.builder();
    const int64_t k_cols = int64_t{a.n_kv_heads} * a.head_dim, v_cols = int64_t{a.n_kv_heads} * a.v_head_dim;
    f.label("attn_kv");
    const Ref weights[] = {f.matrix("attn_k.weight", k_cols, f.spec().n_embd),
                           f.matrix("attn_v.weight", v_cols, f.spec().n_embd)};
    const Ref biases[] = {f.optional_vector("attn_k.bias", k_cols), f.optional_vector("attn_v.bias", v_cols)};
    const Ref kv = matmul(b, weights, h, {{}, biases});
    const Ref k = qk_norm(f, a, b.columns(kv, 0, k_cols), "attn_k_norm");
    // No query asks here: the keys stand in for them.
    store_keys(f, a, k, k, b.columns(kv, k_cols, v_cols), f.cache_layer());
}

Ref mixer_block(Forward& f, const AttentionSpec& a, Ref x) {
    Builder& b = f.builder();
    const int64_t q_cols = query_cols(a), k_cols = int64_t{a.n_kv_heads} * a.head_dim,
                  v_cols = int64_t{a.n_kv_heads} * a.v_head_dim;
    const Ref h = f.block_input(x, "attn_norm");
    const Ref qkv = project_qkv(f, a, h);
    Ref q = b.columns(qkv, 0, q_cols), gate;
    if (f.has("attn_gate.weight")) {
        f.label("attn_gate");
        const int64_t columns = int64_t{a.n_heads} * a.v_head_dim;
        const int64_t gates = f.rows("attn_gate.weight") == columns ? columns : a.n_heads;
        gate = matmul(b, f.matrix("attn_gate.weight", gates, f.spec().n_embd), h);
    }
    if (a.gated) {
        gate = splice_heads(b, q, {a.n_heads, a.head_dim, a.head_dim});
        q = splice_heads(b, q, {a.n_heads, 0, a.head_dim});
    }
    q = qk_norm(f, a, q, "attn_q_norm");
    const bool own = a.kv_layer < 0;
    Ref k, v;
    if (own) {
        const Ref projected = b.columns(qkv, q_cols, k_cols);
        k = qk_norm(f, a, projected, "attn_k_norm");
        v = a.keys_are_values ? projected : b.columns(qkv, q_cols + k_cols, v_cols);
        if (a.v_norm) v = norm(b, v, {}, {f.spec().norm_eps, a.v_head_dim});
    }

    const int32_t layer = own ? f.cache_layer() : a.kv_layer;
    q = store_keys(f, a, q, k, v, layer);

    const AttentionBatch batch = f.batch(a.kv_group);
    if (a.query_scale.beta != 0) q = scale_by_position(b, q, batch.positions, a.query_scale);

    f.label("attention");
    const AttentionParams p{a.n_heads,        a.n_kv_heads, a.head_dim, a.v_head_dim,
                            f.kv().page_size, a.window,     a.scale,    a.softcap};
    Ref y = attention(b, q, f.k_cache(layer), f.v_cache(layer), batch, p,
                      f.optional_vector("attn_sinks.weight", a.n_heads));
    if (gate) y = glu(b, gate, y, {a.gate_act});
    y = f.keep_output_rows(y);
    x = f.keep_output_rows(x);

    return f.project(y, "attn_output", x, "post_attention_norm");
}

}  // namespace nibble
