// ModelSpec: what a model computes, as plain data: one LayerSpec per layer, no names of architectures.
// A number or an optional weight is a field; a different computation is a new block (src/model/blocks).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
    // Others for contexts longer than `original_context`, where the two differ; see use_context().
    std::vector<float> long_inv_freq;
    int32_t original_context = 0;
};

// Norms of queries and keys: none, each head on its own, the same without a weight, or the whole projection.
enum class QkNorm : uint8_t { none, head, plain_head, row };

// Softmax attention over the paged cache. Present tensors switch on: biases, sinks, one fused attn_qkv, a
// gate of each head's output or of each of its columns (attn_gate).
struct AttentionSpec {
    int32_t n_heads = 0;
    int32_t n_kv_heads = 0;
    int32_t head_dim = 0;
    int32_t v_head_dim = 0;
    int32_t window = 0;  // 0: every earlier position
    float scale = 0;     // usually 1 / sqrt(head_dim)
    float softcap = 0;   // 0: none
    QkNorm qk_norm = QkNorm::none;
    bool rope_before_norm = false;  // otherwise normalized heads rotate
    bool keys_are_values = false;   // as projected: there is no attn_v
    bool v_norm = false;            // of each head of values, without a weight
    int32_t kv_layer = -1;          // whose keys and values it attends to; -1: its own
    bool gated = false;             // a gate beside each head's queries multiplies its output
    Activation gate_act = Activation::sigmoid;
    PositionScaleParams query_scale = {};  // of queries by their position; beta 0: none
    int32_t rope = 0;                      // index into ModelSpec::ropes; -1: no positions
    int32_t kv_group = 0;                  // index into ModelSpec::kv_groups
};

// Attention with keys and values compressed to one latent vector per token (DeepSeek-V2, arXiv:2405.04434,
// section 2.1). The cache holds that vector and a rotated part that all heads share; the matrices that would
// expand it are applied to queries and outputs instead. Present tensors switch on: compressed queries,
// biases.
struct LatentAttentionSpec {
    int32_t n_heads = 0;
    int32_t latent_dim = 0;  // of keys and values
    int32_t nope_dim = 0;    // columns of a head that do not rotate
    int32_t rope_dim = 0;    // columns that do, behind the others
    int32_t v_head_dim = 0;
    float scale = 0;
    float norm_eps = 1e-6f;  // of the norms of compressed vectors
    int32_t rope = 0;
    int32_t kv_group = 0;
    PositionScaleParams query_scale = {};  // as in AttentionSpec

    int32_t head_dim() const { return nope_dim + rope_dim; }
    int32_t cached_dim() const { return rope_dim + latent_dim; }
};

// Linear attention: queries, keys and values after a short convolution, then the gated delta rule
// (arXiv:2412.06464), a norm per head and a gate. What it carries from token to token is a state of fixed
// size.
struct DeltaNetSpec {
    int32_t n_k_heads = 0;
    int32_t n_v_heads = 0;
    int32_t k_dim = 0;
    int32_t v_dim = 0;
    int32_t n_taps = 0;  // of the convolution
    bool tiled = false;  // as in DeltaRuleParams
    int32_t kv_group = 0;

    int32_t key_cols() const { return n_k_heads * k_dim; }
    int32_t value_cols() const { return n_v_heads * v_dim; }
    int32_t conv_cols() const { return 2 * key_cols() + value_cols(); }
};

// A state space (Mamba-2, arXiv:2405.21060): a short convolution, a matrix per head that fades and to which
// every token adds, a gate and a norm.
struct Mamba2Spec {
    int32_t n_groups = 0;  // of heads that have keys and queries in common
    int32_t n_heads = 0;
    int32_t k_dim = 0;
    int32_t v_dim = 0;
    int32_t n_taps = 0;  // of the convolution
    int32_t kv_group = 0;
    bool group_norm = false;  // the norm is of each group's columns

    int32_t inner_cols() const { return n_heads * v_dim; }
    int32_t conv_cols() const { return inner_cols() + 2 * n_groups * k_dim; }
};

// A short convolution between two gates (LFM2, arXiv:2511.23404, section 2): of [b, c, x] = W input the
// output is c * conv(b * x).
struct ShortConvSpec {
    int32_t n_taps = 0;
    int32_t kv_group = 0;
};

// Where a layer is one block alone (Nemotron-H, arXiv:2504.03624, section 2): in place of the other.
struct NoBlock {
    static constexpr int32_t kv_group = 0;
};

// Gated: act(gate) * up, as two tensors or fused in ffn_up, the gate first. Otherwise act(up).
struct DenseFfnSpec {
    int32_t n_ff = 0;
    Activation act = Activation::silu;
    bool gated = true;
    XieluParams xielu = {};  // of that activation
};

// A mixture of experts. Present tensors switch on: biases, of the choice too, a factor on each expert's
// output, the gate of the shared expert.
struct MoeFfnSpec {
    int32_t n_experts = 0;
    int32_t n_used = 0;     // experts per token
    int32_t n_ff = 0;       // of one expert
    bool normalize = true;  // the weights of the chosen ones add up to one
    Gating gating = Gating::softmax;
    int32_t n_groups = 1;  // as in MoeRouteParams, like the next two
    int32_t n_groups_used = 1;
    float scale = 1;
    float router_scale = 1;  // of what the router says
    Activation act = Activation::silu;
    float limit = 0;          // of the gate and up, as in GluParams
    float up_shift = 0;       // likewise
    int32_t n_ff_shared = 0;  // of the expert that every token passes, 0: none
    float shared_scale = 1;   // of that one's output
    bool gated = true;        // as in DenseFfnSpec, the shared one too
    // Columns to which the input of all experts but the shared one is compressed; 0: it is not.
    int32_t latent_dim = 0;
};

// Both side by side, added.
struct TwinFfnSpec {
    DenseFfnSpec dense;
    MoeFfnSpec experts;
};

struct LayerSpec {
    std::variant<AttentionSpec, LatentAttentionSpec, DeltaNetSpec, Mamba2Spec, ShortConvSpec, NoBlock> mixer;
    std::variant<DenseFfnSpec, MoeFfnSpec, TwinFfnSpec, NoBlock> ffn;
    bool pre_norm = true;    // attn_norm, ffn_norm: of a block's input
    bool post_norm = false;  // post_attention_norm, post_ffw_norm: of a block's output, before the residual
    bool parallel = false;   // both blocks read the layer's input, and both are added to it
    std::string_view ffn_norm = "ffn_norm";  // the name of the feed-forward's input norm
    float out_scale = 1;                     // of all that leaves the layer
};

// Layers whose pages live and die together: same window, same block tables. In a group of states a page is
// all that a sequence carries, whatever its length.
struct KvGroupSpec {
    int32_t window = 0;
    bool states = false;
};

// How a model guesses a block of tokens at once for another one (DFlash, arXiv:2602.06036): what some of the
// other's layers say about each token, side by side, becomes keys and values of all of its own layers; behind
// them stand the embedding of the token that is known and those of masks, rows that see each other, of which
// each mask's tells a token.
inline constexpr int32_t most_block_rows = 256;
struct BlockGuessSpec {
    int32_t size = 0;               // rows, the known token's among them
    int32_t mask = 0;               // token
    std::vector<uint32_t> sources;  // layers of the other model, whose outputs are read
};

struct ModelSpec {
    std::string arch;  // for people and files; never branched on
    std::string name;
    int32_t n_vocab = 0;  // rows of the embedding, possibly more than the tokenizer has
    int32_t n_embd = 0;
    int32_t n_ctx_train = 0;
    float norm_eps = 1e-5f;
    float post_norm_eps = 0;                       // of norms behind blocks; 0: the same
    bool layer_norm = false;                       // LayerNorm instead of RMS norm
    std::string_view output_norm = "output_norm";  // the name of the norm before the output
    int32_t n_positions = 0;  // rows of position_embd, which is then added to the embedding; 0: none
    int32_t n_per_layer = 0;  // columns of the embedding of its own that a token has for each layer; 0: none
    float embed_scale = 1;
    bool embed_norm = false;   // an RMS norm of the embedding, without a weight
    float residual_scale = 1;  // of every block's output
    float logit_scale = 1;
    float logit_softcap = 0;  // 0: none
    std::vector<RopeSpec> ropes;
    std::vector<KvGroupSpec> kv_groups;
    std::vector<LayerSpec> layers;
    // Of a model that guesses for another one, to whose keys and values its layers attend: the other's width.
    // 0: it is a model by itself. See attach().
    int32_t n_backbone = 0;
    std::optional<BlockGuessSpec> block_guess;  // of such a model, if it guesses so
    // Of a model for which one guesses so: that one's layers, which have places in this one's cache, and the
    // layers whose outputs it reads.
    std::vector<LayerSpec> guests;
    std::vector<uint32_t> sources;
    // The layer behind the others that guesses the token after the next one from the model's last hidden
    // state and the next token (DeepSeek-V3, arXiv:2412.19437, section 2.2). It has a place in the cache of
    // its own.
    std::optional<LayerSpec> predictor;
};

// Chooses what depends on the longest sequence a run can have: the frequencies of RopeSpec. An Error when the
// model has no positions beyond some number and the context is longer.
Result<void> use_context(ModelSpec& spec, int32_t ctx);

// The layer to whose keys and values this one attends, where they are not its own.
std::optional<size_t> shared_kv_layer(const LayerSpec& layer);

// Lets each layer of a model with a backbone attend to the last layer of its kind in `main` that has keys and
// values of its own; one that guesses in blocks becomes its guest instead. An Error when they do not fit
// together.
Result<void> attach(ModelSpec& assistant, ModelSpec& main);

// What each layer has in the cache, in two tensors; behind the layers the predictor's, then those of guests.
struct KvLayer {
    // Keys and values: elements that one token adds. With v_dim 0 values are columns of the keys, from
    // `v_first` on.
    int32_t n_kv_heads, k_dim, v_dim, group;
    int32_t v_first = 0;
    // A state, in f32: so many rows of k_dim and of v_dim elements, of all tokens together.
    int32_t k_rows = 0, v_rows = 0;

    bool is_state() const { return k_rows > 0; }
    // Of a page, in each of the two tensors.
    int64_t k_page_rows(int32_t page_size) const {
        return is_state() ? k_rows : int64_t{n_kv_heads} * page_size;
    }
    int64_t v_page_rows(int32_t page_size) const {
        return is_state() ? v_rows : int64_t{n_kv_heads} * page_size;
    }
};
std::vector<KvLayer> kv_layers(const ModelSpec& spec);
// Which of them is the first guest's.
inline int32_t first_guest(const ModelSpec& spec) {
    return static_cast<int32_t>(spec.layers.size()) + (spec.predictor ? 1 : 0);
}
bool has_states(const ModelSpec& spec);

// Bytes of a sequence's state, all layers.
size_t state_bytes(const ModelSpec& spec);
// Bytes of keys and values per token, all layers; nothing when a head is no whole number of blocks.
std::optional<size_t> kv_bytes_per_token(const ModelSpec& spec, Type k_type, Type v_type);
// The same of what a later token reads of it: layers may attend to the keys and values of others.
std::optional<size_t> kv_bytes_read_per_token(const ModelSpec& spec, Type k_type, Type v_type);

}  // namespace nibble
