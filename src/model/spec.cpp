// What a ModelSpec says about its cache, and the choices that wait for the length of the context.
// Plain arithmetic; the tensors are made by the engine.
#include "src/model/spec.h"

namespace nibble {

Result<void> use_context(ModelSpec& spec, int32_t ctx) {
    if (spec.n_positions > 0 && ctx > spec.n_positions)
        return Error{ErrorCode::invalid_argument, "context",
                     cat(ctx, " tokens are more than the ", spec.n_positions, " positions this model knows"),
                     cat("give at most --ctx ", spec.n_positions)};
    for (RopeSpec& r : spec.ropes)
        if (!r.long_inv_freq.empty() && ctx > r.original_context) r.inv_freq = r.long_inv_freq;
    return {};
}

std::vector<KvLayer> kv_layers(const ModelSpec& spec) {
    std::vector<KvLayer> layers;
    for (const LayerSpec& l : spec.layers) {
        if (const auto* latent = std::get_if<LatentAttentionSpec>(&l.mixer)) {
            layers.push_back({1, latent->cached_dim(), 0, latent->kv_group, latent->rope_dim});
            continue;
        }
        const auto& a = std::get<AttentionSpec>(l.mixer);
        layers.push_back({a.n_kv_heads, a.head_dim, a.v_head_dim, a.kv_group});
    }
    return layers;
}

std::optional<size_t> kv_bytes_per_token(const ModelSpec& spec, Type k_type, Type v_type) {
    size_t bytes = 0;
    for (const KvLayer& l : kv_layers(spec)) {
        const auto k = row_bytes(k_type, l.k_dim), v = row_bytes(v_type, l.v_dim);
        if (!k || !v || !row_bytes(k_type, l.v_first)) return {};
        bytes += static_cast<size_t>(l.n_kv_heads) * (*k + *v);
    }
    return bytes;
}

}  // namespace nibble
