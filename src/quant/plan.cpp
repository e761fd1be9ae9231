// plan_conversion: types, sizes and the row order that GGUF wants.
// Vectors are few and small and everything multiplies by them: they stay f32.
#include "src/quant/plan.h"

#include <map>

#include "ggml/base/cat.h"
#include "src/model/rope.h"
#include "src/model/weights.h"

namespace nibble {
namespace {

// Heads of a query or key projection that GGUF stores permuted; 0 for every other tensor.
int32_t permuted_heads(const OpenedModel& model, std::string_view name) {
    if (model.file.kind() != TensorFile::Kind::hf || !model.arch->gguf_permutes_qk) return 0;
    if (name.find(".attn_q.") != std::string_view::npos) return static_cast<int32_t>(model.hyper.n_heads);
    if (name.find(".attn_k.") != std::string_view::npos) return static_cast<int32_t>(model.hyper.n_kv_heads);
    return 0;
}

// Weights trained in MXFP4 gain nothing from a quantized type that is no smaller.
bool keeps_mxfp4(const TensorSource& source, Type wanted) {
    if (source->type != Type::mxfp4 || info(wanted).block_len == 1) return false;
    const int64_t cols = source.cols();
    return *row_bytes(fitting_type(wanted, cols), cols) >= *row_bytes(Type::mxfp4, cols);
}

// The recipe's type or the override's, replaced where the rows do not divide into its blocks.
Result<Type> matrix_type(const TensorPlan& p, bool tied, const PlanOptions& options, ConvertPlan& plan) {
    if (p.name == "position_embd.weight") return p.source->type;  // small, and every token adds a row of it
    if (decides(p.name)) return Type::f32;
    for (const std::string_view taps : {".ssm_conv1d.", ".shortconv.conv."})  // as small
        if (p.name.find(taps) != std::string::npos) return Type::f32;
    Type wanted = options.recipe.types[static_cast<size_t>(role_of(p.name, tied))];
    const auto stated = options.override_type ? options.override_type(p.name, p.source->type) : std::nullopt;
    if (stated) wanted = *stated;
    if (!stated && keeps_mxfp4(p.source, wanted)) return Type::mxfp4;
    // What is bf16 already loses nothing as such, and may exceed what f16 holds.
    const Type fitting =
        fitting_type(wanted, p.source.cols(), p.source->type == Type::bf16 ? Type::bf16 : Type::f16);
    if (fitting == wanted) return wanted;
    std::string line =
        cat(p.name, ": rows of ", p.source.cols(), ": ", info(wanted).name, " -> ", info(fitting).name);
    if (!options.allow_fallback)
        return Error{ErrorCode::unsupported, p.name,
                     cat("rows of ", p.source.cols(), " do not divide into blocks of ",
                         info(wanted).block_len, " (", info(wanted).name, ")"),
                     cat("without --no-fallback it becomes ", info(fitting).name)};
    plan.substitutions.push_back(std::move(line));
    return fitting;
}

// What GGUF states as tensors: the factors of Llama 3, Phi-3's two lists, the factor of queries in the
// weights of their norm.
Result<std::vector<std::pair<std::string, std::vector<float>>>> stated_tensors(const Hyper& h) {
    std::vector<std::pair<std::string, std::vector<float>>> list;
    const RopeScaling& s = h.rope_scaling;
    if (s.type == "longrope")
        list = {{"rope_factors_long.weight", s.long_factors}, {"rope_factors_short.weight", s.short_factors}};
    if (h.rotated_share < 1)
        list.emplace_back("rope_freqs.weight", rotating_divisors(h.rope_dim / 2, h.rotated_share));
    if (s.type == "llama3")
        list.emplace_back("rope_freqs.weight",
                          NIBBLE_TRY(rope_factors(s, h.rope_theta, static_cast<int32_t>(h.rope_dim))));
    for (uint32_t i = 0; i < h.n_layers && h.query_factor > 0; ++i) {
        list.emplace_back(cat("blk.", i, ".attn_q_norm.weight"), std::vector(h.head_dim, h.query_factor));
        list.emplace_back(cat("blk.", i, ".attn_k_norm.weight"), std::vector(h.head_dim, 1.0f));
    }
    return list;
}

Result<void> add_tensor(const OpenedModel& model, const std::string& name, const TensorSource& source,
                        const PlanOptions& options, ConvertPlan& plan) {
    TensorPlan p{source, name, Type::f32, permuted_heads(model, name), 0};
    const int64_t length = source.rows() > 1 ? source.rows() : source.cols();
    if (p.permuted_heads > 0 && length % (2 * int64_t{p.permuted_heads}) != 0)
        return Error{ErrorCode::corrupt, source->name,
                     cat("has ", length, " rows, which are no pairs of ", p.permuted_heads, " heads"), ""};
    const bool tied = !model.tensors.contains("output.weight"),
               matrix = source.rows() > 1 && source.cols() > 1 && !name.ends_with(".bias");
    if (matrix) p.type = NIBBLE_TRY(matrix_type(p, tied, options, plan));
    if (matrix && info(source->type).block_len > 1 && source->type != p.type)
        plan.lossy_sources.push_back(p.name);
    p.bytes = static_cast<uint64_t>(source.rows()) * *row_bytes(p.type, source.cols());
    plan.bytes += p.bytes;
    plan.source_bytes += source.bytes();
    plan.elements += static_cast<uint64_t>(source.rows() * source.cols());
    plan.tensors.push_back(std::move(p));
    return {};
}

}  // namespace

Result<ConvertPlan> plan_conversion(const OpenedModel& model, const PlanOptions& options) {
    ConvertPlan plan;
    // In the order of the file; a tensor of the file can hold two of ours.
    std::unordered_map<std::string_view, std::map<std::string_view, const TensorMap::value_type*>> names;
    for (const auto& entry : model.tensors) names[entry.second->name].emplace(entry.first, &entry);
    for (const TensorInfo& listed : model.file.tensors()) {
        const auto named = names.find(listed.name);
        if (named == names.end()) continue;  // stated by config.json instead, or part of another
        const TensorInfo& t = *named->second.begin()->second->second.info;
        if (t.foreign() || !info(t.type).decode)
            return Error{ErrorCode::unsupported, t.name,
                         cat("has the type ", t.type_name(), ", which cannot be read"), ""};
        for (const auto& [key, entry] : named->second)
            NIBBLE_TRY(add_tensor(model, entry->first, entry->second, options, plan));
    }
    if (model.file.kind() == TensorFile::Kind::hf) plan.stated = NIBBLE_TRY(stated_tensors(model.hyper));
    return plan;
}

}  // namespace nibble
