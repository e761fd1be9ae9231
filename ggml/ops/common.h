// Helpers shared by the ops' reference implementations and test cases.
// Reference code reads any decodable type as f32 rows and favours plainness over speed.
#pragma once

#include <cmath>
#include <vector>

#include "ggml/ops/ops.h"
#include "ggml/types/list.h"

namespace nibble {

// Row r of a tensor of any type with a codec, as f32.
inline std::vector<float> decoded_row(const Tensor& t, int64_t r) {
    std::vector<float> x(static_cast<size_t>(t.cols));
    info(t.type).decode(t.data + r * t.stride, x.data(), x.size());
    return x;
}

inline bool is_f32(const Builder& b, Ref r) { return b.value(r).type == Type::f32; }
inline bool is_i32(const Builder& b, Ref r) { return b.value(r).type == Type::i32; }

// Row counts around the edges of tiles and thread splits; 0 is an empty batch.
inline constexpr int64_t awkward_rows[] = {0, 1, 2, 3, 5, 8, 17, 33};

inline StepShape token_shape(int64_t tokens) { return {tokens, tokens, 1}; }

}  // namespace nibble
