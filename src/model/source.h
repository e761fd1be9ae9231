// TensorSource: a tensor of the file under its canonical name, and how its elements become the canonical
// ones. Hugging Face checkpoints need the latter, and GGUF files that join gates and ups of experts.
#pragma once

#include <memory>
#include <vector>

#include "ggml/base/result.h"
#include "ggml/file/tensor_info.h"

namespace nibble {

enum class Storage : uint8_t {
    same,
    offset_one,  // the weight of a norm, less one (Gemma)
    transposed,  // [in x out] (the Conv1D of GPT-2)
    heads_qkv,   // fused rows as [head][q, k, v][column] instead of [q, k, v][head][column] (GPT-NeoX)
    expert,      // the matrix of one expert; TensorSource::parts are all of them, one below the other
    gate_up,     // [expert][gate, up]: a file's name for it stands for the next two
    gate_half,   // the gates of such a tensor
    up_half,
    alternating,  // gates and ups of experts in turn: a file's name for it stands for the next two
    even_gate,
    odd_up,
    scales,         // those of the MXFP4 blocks that go by the same name
    latent,         // [head][keys, values] x latent: a file's name for it stands for the next two
    latent_keys,    // [head][latent] x key: transposed head by head
    latent_values,  // [head][value] x latent
    taps,           // of a convolution, [channel][1][tap]
    // Value heads of linear attention, those of a key head together. Canonical is what GGUF has: first one of
    // each key head, then the next of each.
    value_rows,     // rows
    value_columns,  // columns
    value_taps,     // as taps, keys and queries before the values
    qkv_rows,       // rows, keys and queries before the values
    value_decay,    // elements, as the logarithm of the negative
    column,         // elements, which are rows of one
    decay,          // the same, as the logarithm of the negative
    groups,         // elements, which are a row for each group of a state space
    row_decay,      // elements, as the logarithm of the negative
    head_qkvz,      // rows as [key head][q, k, its v, its z]: a file's name for it stands for the next two
    head_qkv,       // of such a tensor all q, all k and all v
    head_z,
    turned_gate,  // of experts [expert][input][gate, up]
    turned_up,
    turned,  // of experts [expert][input][output]
};

struct TensorSource {
    const TensorInfo* info = nullptr;
    Storage storage = Storage::same;
    int32_t heads = 0;   // heads_qkv, latent, key heads; value heads: key heads; groups
    int32_t keys = 0;    // latent, key heads: key rows of a head; value heads: rows before them
    int32_t values = 0;  // value heads; key heads: value rows of one
    std::vector<const TensorInfo*> parts = {};  // expert: `info` is the first; latent_keys: the file's tensor
    // MXFP4 as checkpoints have it: 16 bytes of codes per block in one tensor, scales in another. `info` is
    // then `joined`, which has the type, the shape and the codes. Of latent keys it says the type: f16 where
    // the file has blocks, which cannot be transposed.
    const TensorInfo* scales = nullptr;
    std::shared_ptr<const TensorInfo> joined = {};

    const TensorInfo* operator->() const { return info; }
    const TensorInfo& operator*() const { return *info; }

    // What the elements are read from; of an expert the first.
    const TensorInfo& file_tensor() const { return parts.empty() ? *info : *parts[0]; }

    // Of the canonical tensor.
    int64_t rows() const {
        if (storage == Storage::transposed) return info->cols();
        if (storage == Storage::expert) return info->rows() * static_cast<int64_t>(parts.size());
        if (storage == Storage::latent_keys) return info->cols() * heads;
        if (storage == Storage::latent_values) return info->rows() - int64_t{keys} * heads;
        if (is_turned()) return turned_rows() * info->ne[2];
        if (storage == Storage::head_z) return int64_t{heads} * values;
        if (storage == Storage::head_qkv) return info->rows() - int64_t{heads} * values;
        return is_half() && !in_columns() ? info->rows() / 2 : info->rows();
    }
    int64_t cols() const {
        if (storage == Storage::transposed) return info->rows();
        if (is_turned()) return info->ne[1];
        if (storage == Storage::latent_keys) return keys;
        return in_columns() ? info->cols() / 2 : info->cols();
    }
    bool in_turns() const { return storage == Storage::even_gate || storage == Storage::odd_up; }
    bool is_half() const {
        return storage == Storage::gate_half || storage == Storage::up_half || in_turns();
    }
    // Biases of experts, a row each: their columns are in turns.
    bool in_columns() const { return in_turns() && info->n_dims == 2; }
    bool is_turned() const { return storage >= Storage::turned_gate && storage <= Storage::turned; }
    // Of one expert.
    int64_t turned_rows() const { return storage == Storage::turned ? info->cols() : info->cols() / 2; }
    bool of_key_heads() const { return storage == Storage::head_qkv || storage == Storage::head_z; }
    bool has_value_heads() const { return storage >= Storage::value_rows && storage <= Storage::value_decay; }
    // Whether it is the other of two that share a tensor of the file.
    bool is_second() const {
        return storage == Storage::up_half || storage == Storage::odd_up ||
               storage == Storage::latent_values || storage == Storage::head_z ||
               storage == Storage::turned_up;
    }
    // Whether the file holds the canonical tensor as it is.
    bool is_view() const { return storage == Storage::same && !scales; }
    // Dimensions of the canonical tensor, the row length first.
    std::vector<int64_t> dims() const;
    // fn(bytes) for its bytes in the file.
    template <class Fn>
    void each_part(const Fn& fn) const {
        if (parts.empty()) fn(std::span<const std::byte>(info->data));
        for (const TensorInfo* part : parts) fn(std::span<const std::byte>(part->data));
    }
    // What it takes, in the type of the file.
    size_t bytes() const;
};

// Refuses a source whose elements cannot be rearranged: blocks that would have to part, a shape that does not
// divide.
Result<void> check_source(const TensorSource& source);

// Canonical row r as f32 [cols]. The source must have passed check_source() and have a codec.
void decode_row(const TensorSource& source, int64_t r, float* out);
// The same in the type of the file: its bytes, unless the storage changes values.
void copy_row(const TensorSource& source, int64_t r, std::byte* out);

// The whole canonical tensor in the type of the file, for storages that cannot be a view.
std::vector<std::byte> rearranged(const TensorSource& source);

}  // namespace nibble
