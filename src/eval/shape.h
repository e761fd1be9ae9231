// Model shapes by name: what one needs to know of a model to tell how fast it would run, without its weights.
// Adding one is a row of the table in shape.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ggml/base/result.h"

namespace nibble {

struct ModelShape {
    std::string_view name;
    std::string_view arch;  // general.architecture
    int32_t n_layers = 0, n_embd = 0, n_ff = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
    int32_t n_vocab = 0, n_ctx = 0;
    float rope_theta = 10000;
    bool tied = false;                                           // the output is the embedding
    bool qkv_bias = false;                                       // queries, keys and values have biases
    bool qk_norm = false;                                        // queries and keys are normalized per head
    int32_t n_experts = 0, n_experts_used = 0, n_ff_expert = 0;  // 0: dense
    // Layers that carry a state. Of each layer, over and over: 'a' if it attends, 's' if it does within the
    // window, '.' if not, 'e' if it is experts alone; empty: all attend.
    std::string_view attends = {};
    int32_t n_taps = 0;  // of their convolution
    int32_t delta_k_heads = 0, delta_v_heads = 0,
            delta_dim = 0;  // of linear attention; 0: a convolution alone
    // Keys of a state space, of which delta_dim are the values; each layer is then one block (Nemotron).
    int32_t state_dim = 0;
    bool gates_together = false;  // b and a of a key head's value heads (Qwen 3 Next)
    float rope_share = 1;         // of a head that rotates
    int32_t n_ff_shared = 0;      // of the expert that every token passes, behind a gate; 0: none
    std::string_view ffn_norm = "ffn_norm", output_norm = "output_norm";
    bool predicts = false;  // with a layer behind the others that guesses further ahead
    // Layers that see a window of the context. Of so many each the last one sees all of it, with heads of its
    // own width, if it has one, of which rope_share rotates.
    int32_t window = 0, full_every = 0, full_head_dim = 0;  // 0: none
    // The last layers have no keys and values of their own, and may have wider feed-forwards.
    int32_t n_sharing = 0, n_ff_sharing = 0;
    int32_t n_per_layer = 0;  // columns of what a token has for each layer (Gemma 4); 0: none
    // Latent attention (DeepSeek): columns of the compressed queries and keys, of a head that rotate, and of
    // its values. The first layer is dense; experts are chosen by sigmoid.
    int32_t q_latent = 0, kv_latent = 0, rope_dim = 0, v_head_dim = 0;  // 0: none
    // A gate on each column of attention's output, norms around the blocks; what sees all does not rotate
    // (Muse).
    bool gated_columns = false;
    bool all_biased = false;  // all products have biases, and heads sinks; experts are in MXFP4 (gpt-oss)

    char kind_of(int32_t layer) const {
        return attends.empty() ? 'a' : attends[static_cast<size_t>(layer) % attends.size()];
    }
    bool has_experts_in(int32_t layer) const { return n_experts > 0 && layer >= (kv_latent > 0 ? 1 : 0); }
    bool attends_in(int32_t layer) const { return kind_of(layer) == 'a' || kind_of(layer) == 's'; }
    bool slides_in(int32_t layer) const {
        return full_every > 0 ? (layer + 1) % full_every != 0 : kind_of(layer) == 's';
    }
    bool has_gated_heads() const { return n_taps > 0 && window > 0; }  // and norms around its blocks (LFM3)
    bool has_post_norms() const { return has_gated_heads() || gated_columns; }
    bool shares_in(int32_t layer) const { return layer < n_layers && layer >= n_layers - n_sharing; }
    int32_t head_dim_in(int32_t layer) const {
        return full_head_dim > 0 && !slides_in(layer) ? full_head_dim : head_dim;
    }
    int32_t n_ff_in(int32_t layer) const {
        return n_ff_sharing > 0 && shares_in(layer) ? n_ff_sharing : n_ff;
    }
};

std::span<const ModelShape> all_shapes();
// An Error lists the known names.
Result<ModelShape> find_shape(std::string_view name);

}  // namespace nibble
