// check_ranges(): the hyperparameters of a file before anything is computed or allocated by them.
// What no real model states is refused with the field's name.
#include <algorithm>

#include "ggml/base/cat.h"
#include "ggml/base/exp_weight.h"
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr uint32_t max_sources = 64;

}  // namespace

Result<void> check_ranges(const Hyper& h, const std::string& where) {
    const auto bad = [&](std::string_view field, uint32_t value) {
        return Error{ErrorCode::corrupt, where, cat("field '", field, "' has the impossible value ", value),
                     ""};
    };
    if (h.n_layers == 0 || h.n_layers > max_layers) return bad("number of layers", h.n_layers);
    if (h.n_embd == 0 || h.n_embd > max_width) return bad("embedding length", h.n_embd);
    if (h.n_heads == 0 || h.n_heads > h.n_embd) return bad("number of attention heads", h.n_heads);
    if (h.n_kv_heads == 0 || h.n_heads % h.n_kv_heads) return bad("number of kv heads", h.n_kv_heads);
    if (h.head_dim == 0 || h.head_dim > max_width) return bad("head dimension", h.head_dim);
    if (h.v_head_dim == 0 || h.v_head_dim > max_width) return bad("value head dimension", h.v_head_dim);
    if (h.n_ff == 0 || h.n_ff > max_width * 8) return bad("feed-forward length", h.n_ff);
    if (h.n_experts > static_cast<uint32_t>(max_experts)) return bad("number of experts", h.n_experts);
    if (h.n_experts > 0 && (h.n_experts_used == 0 || h.n_experts_used > h.n_experts))
        return bad("number of experts used", h.n_experts_used);
    if (h.n_ff_expert > max_width * 8) return bad("feed-forward length of an expert", h.n_ff_expert);
    if (h.n_ff_shared > max_width * 8) return bad("feed-forward length of the shared expert", h.n_ff_shared);
    if (h.n_vocab == 0 || h.n_vocab > static_cast<uint32_t>(max_vocab))
        return bad("vocabulary size", h.n_vocab);
    if (!(h.rope_share > 0 && h.rope_share <= 1))
        return Error{ErrorCode::corrupt, where,
                     cat("field 'partial_rotary_factor' has the impossible value ", h.rope_share), ""};
    if (h.n_experts_shared > 1024) return bad("number of shared experts", h.n_experts_shared);
    if (h.n_expert_groups == 0 || h.n_expert_groups > static_cast<uint32_t>(max_expert_groups))
        return bad("number of expert groups", h.n_expert_groups);
    if (h.n_expert_groups_used == 0 || h.n_expert_groups_used > h.n_expert_groups)
        return bad("number of expert groups used", h.n_expert_groups_used);
    if (h.latent_dim > max_width) return bad("latent dimension", h.latent_dim);
    if (h.expert_latent_dim > max_width) return bad("latent dimension of experts", h.expert_latent_dim);
    if (h.n_backbone > max_width) return bad("width of the model it guesses for", h.n_backbone);
    if (h.block_size == 1 || h.block_size > uint32_t{most_block_rows})
        return bad("rows of a block", h.block_size);
    if (h.sources.size() > max_sources) return bad("number of layers that are read", max_sources + 1);
    if (h.mask_token >= static_cast<uint32_t>(max_vocab)) return bad("mask token", h.mask_token);
    if (h.n_next_layers > max_layers) return bad("number of layers that look ahead", h.n_next_layers);
    if (h.rope_dim > h.head_dim) return bad("rope dimension", h.rope_dim);
    if (h.n_taps > static_cast<uint32_t>(max_conv_taps) || h.n_taps == 1)
        return bad("length of the convolution", h.n_taps);
    const auto state_dim = static_cast<uint32_t>(max_state_dim);
    if (h.delta_k_dim > state_dim || h.delta_v_dim > state_dim)
        return bad("head dimension of linear attention", std::max(h.delta_k_dim, h.delta_v_dim));
    if (h.delta_v_heads > max_width / state_dim) return bad("number of value heads", h.delta_v_heads);
    if (h.delta_k_heads > max_width / state_dim) return bad("number of key heads", h.delta_k_heads);
    if (h.delta_v_heads > 0 && (h.delta_k_heads == 0 || h.delta_v_heads % h.delta_k_heads))
        return bad("number of key heads", h.delta_k_heads);
    for (const auto* list : {&h.sliding, &h.rotated, &h.attends})
        if (!list->empty() && list->size() != h.n_layers)
            return bad("number of layers with a stated kind", static_cast<uint32_t>(list->size()));
    for (const auto* list : {&h.heads, &h.kv_heads, &h.ff_lengths})
        if (!list->empty() && list->size() != h.n_layers)
            return bad("number of layers with a stated size", static_cast<uint32_t>(list->size()));
    for (const uint32_t n : h.ff_lengths)
        if (n > max_width * 8) return bad("feed-forward length", n);
    for (uint32_t i = 0; i < h.n_layers && !(h.heads.empty() && h.kv_heads.empty()); ++i) {
        const uint32_t n = h.heads.empty() ? h.n_heads : h.heads[i],
                       n_kv = h.kv_heads.empty() ? h.n_kv_heads : h.kv_heads[i];
        if (n == 0 || n > h.n_heads) return bad("number of attention heads", n);
        if (n_kv > 0 && n % n_kv) return bad("number of kv heads", n_kv);
    }
    if (h.head_dim_local > max_width) return bad("head dimension of sliding layers", h.head_dim_local);
    if (h.n_per_layer > max_width / 8) return bad("embedding length of a layer", h.n_per_layer);
    if (h.n_shared_kv_layers >= h.n_layers) return bad("number of layers without keys", h.n_shared_kv_layers);
    if (!(h.rotated_share > 0 && h.rotated_share <= 1))
        return Error{ErrorCode::corrupt, where,
                     cat("a share of ", h.rotated_share, " of a head cannot rotate"), ""};
    if (h.n_ctx == 0 || h.n_ctx > (1u << 30)) return bad("context length", h.n_ctx);
    return {};
}

}  // namespace nibble
