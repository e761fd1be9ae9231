// plan_conversion: types, sizes and the row order that GGUF wants.
// Vectors are few and small and everything multiplies by them: they stay f32.
#include "src/quant/plan.h"

#include "ggml/base/cat.h"
#include "src/model/rope.h"

namespace nibble {
namespace {

// Heads of a query or key projection that GGUF stores permuted; 0 for every other tensor.
int32_t permuted_heads(const OpenedModel& model, std::string_view name) {
    if (model.file.kind() != TensorFile::Kind::hf || !model.arch->gguf_permutes_qk) return 0;
    if (name.find(".attn_q.") != std::string_view::npos) return static_cast<int32_t>(model.hyper.n_heads);
    if (name.find(".attn_k.") != std::string_view::npos) return static_cast<int32_t>(model.hyper.n_kv_heads);
    return 0;
}

}  // namespace

Result<ConvertPlan> plan_conversion(const OpenedModel& model, Type matrix_type) {
    ConvertPlan plan;
    std::unordered_map<const TensorInfo*, std::string> names;
    for (const auto& [name, info] : model.tensors) names.emplace(info, name);
    for (const TensorInfo& t : model.file.tensors()) {
        const auto named = names.find(&t);
        if (named == names.end()) continue;  // stated by config.json instead
        if (t.foreign() || !info(t.type).decode)
            return Error{ErrorCode::unsupported, t.name,
                         cat("has the type ", t.type_name(), ", which cannot be read"), ""};
        TensorPlan p{&t, named->second, Type::f32, permuted_heads(model, named->second), 0};
        if (t.n_dims > 1) p.type = matrix_type;
        const auto bytes = tensor_bytes(p.type, t.ne);
        if (!bytes)
            return Error{ErrorCode::unsupported, t.name,
                         cat("has rows of ", t.cols(), ", which ", info(p.type).name,
                             " cannot divide into blocks of ", info(p.type).block_len),
                         "choose another type"};
        p.bytes = *bytes;
        plan.bytes += p.bytes;
        plan.source_bytes += t.data.size();
        plan.tensors.push_back(std::move(p));
    }
    const Hyper& h = model.hyper;
    if (model.file.kind() == TensorFile::Kind::hf && h.rope_scaling.type == "llama3")
        plan.rope_factors =
            NIBBLE_TRY(rope_factors(h.rope_scaling, h.rope_theta, static_cast<int32_t>(h.rope_dim)));
    return plan;
}

}  // namespace nibble
