// TensorSource: a tensor of the file under its canonical name, and how its elements become the canonical
// ones. Only Hugging Face checkpoints need the latter: a GGUF file holds canonical tensors.
#pragma once

#include <vector>

#include "ggml/base/result.h"
#include "ggml/file/tensor_info.h"

namespace nibble {

enum class Storage : uint8_t {
    same,
    offset_one,  // the weight of a norm, less one (Gemma)
    transposed,  // [in x out] (the Conv1D of GPT-2)
    heads_qkv,   // fused rows as [head][q, k, v][column] instead of [q, k, v][head][column] (GPT-NeoX)
};

struct TensorSource {
    const TensorInfo* info = nullptr;
    Storage storage = Storage::same;
    int32_t heads = 0;  // heads_qkv

    const TensorInfo* operator->() const { return info; }
    const TensorInfo& operator*() const { return *info; }

    // Of the canonical tensor.
    int64_t rows() const { return storage == Storage::transposed ? info->cols() : info->rows(); }
    int64_t cols() const { return storage == Storage::transposed ? info->rows() : info->cols(); }
};

// Refuses a source whose elements cannot be rearranged: a quantized one, a shape that does not divide.
Result<void> check_source(const TensorSource& source);

// Canonical row r as f32 [cols]. The source must have passed check_source() and have a codec.
void decode_row(const TensorSource& source, int64_t r, float* out);

// The whole canonical tensor in the type of the file, for storages that cannot be a view.
std::vector<std::byte> rearranged(const TensorSource& source);

}  // namespace nibble
