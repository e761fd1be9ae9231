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

// The recipe's type or the override's, replaced where the rows do not divide into its blocks.
Result<Type> matrix_type(const TensorPlan& p, bool tied, const PlanOptions& options, ConvertPlan& plan) {
    Type wanted = options.recipe.types[static_cast<size_t>(role_of(p.name, tied))];
    if (options.override_type)
        if (const auto t = options.override_type(p.name, p.source->type)) wanted = *t;
    const Type fitting = fitting_type(wanted, p.source->cols());
    if (fitting == wanted) return wanted;
    std::string line =
        cat(p.name, ": rows of ", p.source->cols(), ": ", info(wanted).name, " -> ", info(fitting).name);
    if (!options.allow_fallback)
        return Error{ErrorCode::unsupported, p.name,
                     cat("rows of ", p.source->cols(), " do not divide into blocks of ",
                         info(wanted).block_len, " (", info(wanted).name, ")"),
                     cat("without --no-fallback it becomes ", info(fitting).name)};
    plan.substitutions.push_back(std::move(line));
    return fitting;
}

}  // namespace

Result<ConvertPlan> plan_conversion(const OpenedModel& model, const PlanOptions& options) {
    ConvertPlan plan;
    std::unordered_map<const TensorInfo*, std::string> names;
    for (const auto& [name, info] : model.tensors) names.emplace(info, name);
    const bool tied = !model.tensors.contains("output.weight");
    for (const TensorInfo& t : model.file.tensors()) {
        const auto named = names.find(&t);
        if (named == names.end()) continue;  // stated by config.json instead
        if (t.foreign() || !info(t.type).decode)
            return Error{ErrorCode::unsupported, t.name,
                         cat("has the type ", t.type_name(), ", which cannot be read"), ""};
        TensorPlan p{&t, named->second, Type::f32, permuted_heads(model, named->second), 0};
        if (t.n_dims > 1) p.type = NIBBLE_TRY(matrix_type(p, tied, options, plan));
        if (t.n_dims > 1 && info(t.type).block_len > 1) plan.lossy_sources.push_back(p.name);
        p.bytes = *tensor_bytes(p.type, t.ne);
        plan.bytes += p.bytes;
        plan.source_bytes += t.data.size();
        plan.elements += static_cast<uint64_t>(t.elements());
        plan.tensors.push_back(std::move(p));
    }
    const Hyper& h = model.hyper;
    if (model.file.kind() == TensorFile::Kind::hf && h.rope_scaling.type == "llama3")
        plan.rope_factors =
            NIBBLE_TRY(rope_factors(h.rope_scaling, h.rope_theta, static_cast<int32_t>(h.rope_dim)));
    return plan;
}

}  // namespace nibble
