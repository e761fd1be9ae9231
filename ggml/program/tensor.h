// Tensor: a non-owning view of rows x columns with one row stride, and the sizes that change per step.
// Everything a kernel sees is one of these; there are no other layouts, axes or permutes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ggml/types/type.h"

namespace nibble {

// Number of rows of a value in one step: fixed when recorded, or following the batch.
enum class RowDim : uint8_t {
    fixed,      // the recorded number
    tokens,     // one row per token of the batch
    outputs,    // one row per token whose logits are wanted
    sequences,  // one row per sequence that has tokens in the batch
};

// The sizes of one step; each is at most the size the program was recorded for.
struct StepShape {
    int64_t tokens = 0;
    int64_t outputs = 0;
    int64_t sequences = 0;

    int64_t rows(RowDim dim, int64_t fixed) const {
        switch (dim) {
            case RowDim::tokens:
                return tokens;
            case RowDim::outputs:
                return outputs;
            case RowDim::sequences:
                return sequences;
            case RowDim::fixed:
                break;
        }
        return fixed;
    }
};

// How a tensor's bytes are arranged. `rows` is row after row as in the file; the others belong to the
// backend that packed them (a packed layout is a layout, never a new type) and only it may read them; their
// stride is still the bytes per row, so that rows * stride says what they take.
// `key_tiles` is for caches of keys: see ggml/program/key_tiles.h.
enum class Layout : uint8_t { rows, packed, key_tiles };

struct Tensor {
    std::byte* data = nullptr;
    int64_t rows = 0;
    int64_t cols = 0;    // elements per row, a multiple of the type's block length
    int64_t stride = 0;  // bytes from one row to the next
    Type type = Type::f32;
    Layout layout = Layout::rows;

    template <class T = float>
    T* row(int64_t r) const {
        return reinterpret_cast<T*>(data + r * stride);
    }
    explicit operator bool() const { return data != nullptr; }
};

}  // namespace nibble
