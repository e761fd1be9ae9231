// ModelSpec: what a model computes, as plain data: one LayerSpec per layer, no names of architectures.
// A number or an optional weight is a field; a different computation is a new block (src/model/blocks).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ggml/ops/ops.h"

namespace nibble {

// One rotary table, shared by the layers that name it. Every scaling scheme ends in these two fields.
struct RopeSpec {
    int32_t rot_dim = 0;  // columns of a head that rotate
    RopeStyle style = RopeStyle::half;
    std::vector<float> inv_freq;  // rot_dim / 2 angular frequencies, scaling applied
    float magnitude = 1;          // factor on cosines and sines
};

// Softmax attention over the paged cache. Present tensors switch on: biases, q/k norms, sinks.
struct AttentionSpec {
    int32_t n_heads = 0;
    int32_t n_kv_heads = 0;
    int32_t head_dim = 0;
    int32_t v_head_dim = 0;
    int32_t window = 0;    // 0: every earlier position
    float scale = 0;       // usually 1 / sqrt(head_dim)
    float softcap = 0;     // 0: none
    int32_t rope = 0;      // index into ModelSpec::ropes; -1: no positions
    int32_t kv_group = 0;  // index into ModelSpec::kv_groups
};

struct DenseFfnSpec {
    int32_t n_ff = 0;
    Activation act = Activation::silu;
};

struct LayerSpec {
    std::variant<AttentionSpec> mixer;
    std::variant<DenseFfnSpec> ffn;
};

// Layers whose pages live and die together: same window, same block tables.
struct KvGroupSpec {
    int32_t window = 0;
};

struct ModelSpec {
    std::string arch;  // for people and files; never branched on
    std::string name;
    int32_t n_vocab = 0;  // rows of the embedding, possibly more than the tokenizer has
    int32_t n_embd = 0;
    int32_t n_ctx_train = 0;
    float norm_eps = 1e-5f;
    float embed_scale = 1;
    std::vector<RopeSpec> ropes;
    std::vector<KvGroupSpec> kv_groups;
    std::vector<LayerSpec> layers;
};

// Elements that one token adds to the cache in each layer.
struct KvLayer {
    int32_t n_kv_heads, k_dim, v_dim, group;
};
std::vector<KvLayer> kv_layers(const ModelSpec& spec);

// Bytes of keys and values per token, all layers; nothing when a head is no whole number of blocks.
std::optional<size_t> kv_bytes_per_token(const ModelSpec& spec, Type k_type, Type v_type);

}  // namespace nibble
