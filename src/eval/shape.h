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
    // Layers that carry a state. Of each layer, over and over: 'a' if it attends, '.' if not; empty: all
    // attend.
    std::string_view attends = {};
    int32_t n_taps = 0;  // of their convolution
    int32_t delta_k_heads = 0, delta_v_heads = 0,
            delta_dim = 0;    // of linear attention; 0: a convolution alone
    float rope_share = 1;     // of a head that rotates
    int32_t n_ff_shared = 0;  // of the expert that every token passes, behind a gate; 0: none
    std::string_view ffn_norm = "ffn_norm", output_norm = "output_norm";
    bool predicts = false;  // with a layer behind the others that guesses further ahead

    bool attends_in(int32_t layer) const {
        return attends.empty() || attends[static_cast<size_t>(layer) % attends.size()] == 'a';
    }
};

std::span<const ModelShape> all_shapes();
// An Error lists the known names.
Result<ModelShape> find_shape(std::string_view name);

}  // namespace nibble
