// Hyperparameters as files state them, and Fields: one description of every field, used three ways.
// The same list reads GGUF metadata, reads a Hugging Face config.json and writes GGUF metadata.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"
#include "ggml/file/tensor_file.h"

namespace nibble {

// RoPE scaling as stated; src/model/rope.h turns it into frequencies.
struct RopeScaling {
    std::string type = "none";  // none, linear, yarn, llama3
    float factor = 1;
    uint32_t original_context = 0;
    float low_freq_factor = 1, high_freq_factor = 4;  // llama3
    float beta_fast = 32, beta_slow = 1;              // yarn
    float attention_factor = 0;                       // yarn; 0: derived from the factor
};

struct Hyper {
    uint32_t n_layers = 0;
    uint32_t n_ctx = 0;
    uint32_t n_embd = 0;
    uint32_t n_ff = 0;
    uint32_t n_heads = 0;
    uint32_t n_kv_heads = 0;  // 0: as n_heads
    uint32_t head_dim = 0;    // 0: n_embd / n_heads
    uint32_t v_head_dim = 0;  // 0: as head_dim
    uint32_t n_vocab = 0;     // 0: rows of the embedding
    float norm_eps = 1e-5f;
    float rope_theta = 10000;
    uint32_t rope_dim = 0;  // 0: head_dim
    RopeScaling rope_scaling;
};

class Fields {
  public:
    // Reads from an opened model; keys of GGUF fields are prefixed with "<prefix>.".
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

    Source source_ = Source::gguf;
    const TensorFile* file_ = nullptr;
    Metadata* out_ = nullptr;
    std::string prefix_;
    std::string where_;
    Error error_;
};

}  // namespace nibble
