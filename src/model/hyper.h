// Hyperparameters as files state them, and Fields: one description of every field, used three ways.
// The same list reads GGUF metadata, reads a Hugging Face config.json and writes GGUF metadata.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ggml/base/result.h"
#include "ggml/ops/ops.h"

namespace nibble {

class Metadata;
class TensorFile;

// RoPE scaling as stated; src/model/rope.h turns it into frequencies.
struct RopeScaling {
    std::string type = "none";  // none, linear, yarn, llama3, longrope
    float factor = 1;
    uint32_t original_context = 0;
    float low_freq_factor = 1, high_freq_factor = 4;           // llama3
    float beta_fast = 32, beta_slow = 1;                       // yarn
    float attention_factor = 0;                                // yarn, longrope; 0: derived from the factor
    std::vector<float> short_factors = {}, long_factors = {};  // longrope, one per pair
    float mscale = 0, mscale_all_dim = 0;                      // yarn; 0: not stated
    bool truncate = true;                                      // yarn: the ramp ends at whole pairs
};

struct Hyper {
    uint32_t n_layers = 0;
    uint32_t n_ctx = 0;
    uint32_t n_embd = 0;
    uint32_t n_ff = 0;  // an architecture that knows better sets it before standard_fields()
    uint32_t n_heads = 0;
    uint32_t n_kv_heads = 0;  // 0: as n_heads
    uint32_t head_dim = 0;    // 0: n_embd / n_heads
    uint32_t v_head_dim = 0;  // 0: as head_dim
    uint32_t n_vocab = 0;     // 0: rows of the embedding
    float norm_eps = 1e-5f;
    float rope_theta = 10000;
    uint32_t rope_dim = 0;  // 0: head_dim * rope_share
    float rope_share = 1;   // share of a head that rotates
    RopeScaling rope_scaling;

    bool layer_norm = false;  // set by an architecture before standard_fields()
    float query_growth = 0;   // with every original context that a query is further on; 0: none
    float attn_scale = 0;     // of q.k; 0: 1 / sqrt(head_dim)
    float query_factor = 0;   // of queries whose norm has no weight; 0: it has
    float attn_softcap = 0;   // 0: none
    float logit_softcap = 0;  // 0: none
    float embed_scale = 1;    // the rest as stated; an architecture says what they multiply or divide
    float residual_scale = 1;
    float logit_scale = 1;
    uint32_t window = 0;         // 0: none
    std::vector<bool> sliding;   // per layer; empty: all when there is a window
    float rope_theta_local = 0;  // of sliding layers; 0: as the others
    std::vector<bool> rotated;   // per layer; empty: all
    bool parallel = false;       // residual
    uint32_t n_experts = 0;      // 0: none
    uint32_t n_experts_used = 0;
    uint32_t n_ff_expert = 0;  // 0: as n_ff
    uint32_t n_ff_shared = 0;  // of the shared expert; 0: none
    float ffn_limit = 0;       // of a gated unit's operands; 0: none
    bool expert_norm = true;   // the weights of the chosen experts add up to one
    float expert_scale = 1;    // of those weights
    Gating gating = Gating::softmax;
    uint32_t n_expert_groups = 1;
    uint32_t n_expert_groups_used = 1;
    uint32_t n_experts_shared = 0;     // as many times n_ff_expert is the shared expert's width
    uint32_t n_dense_layers = 0;       // the first ones
    uint32_t n_next_layers = 0;        // behind the others, for tokens further ahead
    uint32_t n_backbone = 0;           // width of the model that this one guesses for; 0: it is one by itself
    uint32_t block_size = 0;           // of one that guesses in blocks: rows of a block
    uint32_t mask_token = 0;           // which stands for those that are not known
    std::vector<uint32_t> sources;     // layers of the other model that it reads
    uint32_t latent_dim = 0;           // of keys and values
    uint32_t q_latent_dim = 0;         // of compressed queries, which tensors say as well; 0: they are not
    std::vector<uint32_t> heads;       // per layer; empty: n_heads in all
    std::vector<uint32_t> kv_heads;    // per layer; empty: n_kv_heads in all
    std::vector<uint32_t> ff_lengths;  // per layer; empty: n_ff in all
    uint32_t head_dim_local = 0;       // of sliding layers; 0: as the others
    uint32_t n_shared_kv_layers = 0;   // the last ones, which have no keys and values of their own
    uint32_t n_per_layer = 0;          // columns of the embedding that a token has for each layer; 0: none
    float rotated_share = 1;           // of a head's pairs, the first; the others have a frequency of zero
    std::vector<bool> attends;         // per layer, the others carry a state; empty: all
    uint32_t n_taps = 0;               // of the convolution of layers that carry a state
    uint32_t delta_k_heads = 0;        // of linear attention
    uint32_t delta_v_heads = 0;
    uint32_t delta_k_dim = 0;
    uint32_t delta_v_dim = 0;
    std::vector<uint32_t> rope_sections;  // pairs that rotate by time, height, width: for text all the same
    float yarn_log_multiplier = 0;        // of a factor on the scores of attention
    uint32_t expert_latent_dim = 0;       // of what experts see of their input; 0: all of it
    // Of the activation xIELU, per layer as stated: the alphas before their softplus.
    std::vector<float> xielu_alpha_p, xielu_alpha_n, xielu_beta, xielu_eps;
};

class Fields {
  public:
    // Reads from an opened model; keys of GGUF fields are prefixed with "<prefix>.", but for those of the
    // tokenizer and of xIELU.
    static Fields reading(const TensorFile& file, std::string prefix);
    // Writes into `out`, which must outlive the object.
    static Fields writing(Metadata& out, std::string prefix);

    // One hyperparameter under both of its names. `hf` is a path into config.json with '.' for nesting and
    // '|' between alternatives, or empty when only GGUF has it (and the other way round).
    // A required one that is missing is an Error; an optional one keeps the value it has.
    template <class T>
    void required(std::string_view gguf, std::string_view hf, T& value) {
        field(gguf, hf, value, true);
    }
    template <class T>
    void optional(std::string_view gguf, std::string_view hf, T& value) {
        field(gguf, hf, value, false);
    }
    // A list of numbers; an absent one leaves `value` alone.
    void numbers(std::string_view gguf, std::string_view hf, std::vector<float>& value);
    // A list of whole numbers, likewise.
    void counts(std::string_view gguf, std::string_view hf, std::vector<uint32_t>& value);
    // A whole number, in config.json perhaps one per layer: all of them have to be the same.
    void same(std::string_view gguf, std::string_view hf, uint32_t& value);
    // One flag per layer. In both formats a list of booleans or integers; in config.json also of names, of
    // which `on` means true and `off` false ('|' between alternatives), anything else is refused.
    void flags(std::string_view gguf, std::string_view hf, std::string_view on, std::string_view off,
               std::vector<bool>& value);
    // What config.json means when it is silent about a field: the default of transformers' class. T:
    // uint32_t, float or bool.
    template <class T>
    void assume(std::string_view hf, T value);
    // Whether the source states this field; never when writing.
    bool states(std::string_view gguf, std::string_view hf) const;
    bool is_number(std::string_view gguf) const;  // whether GGUF states it, and as a single value
    // config.json must either lack the key or state one of these values (as JSON text); anything else means a
    // feature that is not implemented, and is refused with the field's name.
    void expect(std::string_view hf, std::initializer_list<std::string_view> allowed);

    bool from_hf() const { return source_ == Source::hf; }
    bool is_writing() const { return source_ == Source::write; }
    void fail(Error error);
    Result<void> result() const;

  private:
    enum class Source { gguf, hf, write };
    void field(std::string_view gguf, std::string_view hf, uint32_t& value, bool required);
    void field(std::string_view gguf, std::string_view hf, float& value, bool required);
    void field(std::string_view gguf, std::string_view hf, bool& value, bool required);
    void field(std::string_view gguf, std::string_view hf, std::string& value, bool required);
    template <class Stored, class T>
    void exchange(std::string_view gguf, std::string_view hf, T& value, bool required);
    const nlohmann::json* json(std::string_view path) const;
    std::string key(std::string_view gguf) const;

    Source source_ = Source::gguf;
    const TensorFile* file_ = nullptr;
    std::vector<std::pair<std::string, std::shared_ptr<const nlohmann::json>>> assumed_;
    Metadata* out_ = nullptr;
    std::string prefix_;
    std::string where_;
    Error error_;
};

}  // namespace nibble
