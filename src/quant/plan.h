// ConvertPlan: what a conversion will write, tensor by tensor, before a byte of weights is read.
// Exact sizes, so that a dry run can print them; every substitution of a type is listed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/model/opened_model.h"
#include "src/quant/recipe.h"

namespace nibble {

struct TensorPlan {
    TensorSource source;
    std::string name;            // canonical
    Type type = Type::f32;       // as written
    int32_t permuted_heads = 0;  // > 0: rows (or the entries of a bias) are reordered per head for GGUF
    uint64_t bytes = 0;          // as written

    bool is_matrix() const { return source->n_dims > 1; }
    // Written as the file holds it: rounding again would lose something again.
    bool keeps_type() const { return source->type == type; }
};

struct ConvertPlan {
    std::vector<TensorPlan> tensors;
    std::vector<std::pair<std::string, std::vector<float>>> stated;  // written as f32 tensors
    std::vector<std::string> substitutions;  // "blk.0.ffn_down.weight: rows of 896: q4_k -> iq4_nl"
    std::vector<std::string> lossy_sources;  // tensors that are quantized already
    uint64_t source_bytes = 0, bytes = 0, elements = 0;
};

struct PlanOptions {
    Recipe recipe;
    bool allow_fallback = true;
    // The type of one tensor by name, or nothing to follow the recipe; overrides everything but vectors.
    std::function<std::optional<Type>(const std::string& name, Type source)> override_type;
};

// Vectors become f32. Errors: a tensor that cannot be read; a substitution when none is allowed.
Result<ConvertPlan> plan_conversion(const OpenedModel& model, const PlanOptions& options);

}  // namespace nibble
