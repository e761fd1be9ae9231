// ConvertPlan: what a conversion will write, tensor by tensor, before a byte is read.
// Exact sizes, so that a dry run can print them.
#pragma once

#include <string>
#include <vector>

#include "src/model/architecture.h"

namespace nibble {

struct TensorPlan {
    const TensorInfo* source = nullptr;
    std::string name;            // canonical
    Type type = Type::f32;       // as written
    int32_t permuted_heads = 0;  // > 0: rows (or the entries of a bias) are reordered per head for GGUF
    uint64_t bytes = 0;          // as written
};

struct ConvertPlan {
    std::vector<TensorPlan> tensors;
    std::vector<float> rope_factors;  // written as rope_freqs.weight when not empty
    uint64_t source_bytes = 0;
    uint64_t bytes = 0;
};

// `matrix_type` is for two-dimensional weights; vectors become f32. An Error when rows do not divide into
// blocks of the type.
Result<ConvertPlan> plan_conversion(const OpenedModel& model, Type matrix_type);

}  // namespace nibble
