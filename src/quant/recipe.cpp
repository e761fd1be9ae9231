// The table of recipes. Extra bits go where a measured mean KL falls most per byte (docs/quality.md).
// Fallbacks are a chain per type: the first whose blocks divide the row.
#include "src/quant/recipe.h"

#include <algorithm>

#include "ggml/base/cat.h"
#include "ggml/base/lower_case.h"

namespace nibble {
namespace {

using enum Type;

// Types in the order of Role: embedding, output, attn_q, attn_k, attn_v, attn_output, ffn_in, ffn_down,
// other.
constexpr Recipe table[] = {
    {"int8",
     "8 bits, blocks of 32: as good as the source",
     {q8_0, q8_0, q8_0, q8_0, q8_0, q8_0, q8_0, q8_0, q8_0}},
    {"int4",
     "4 bits, more where it pays: what most should use",
     {q4_k, q6_k, q4_k, q5_k, q6_k, q4_k, q4_k, q4_k, q4_k}},
    {"int3",
     "3 bits, more where it pays: with --calibrate",
     {q3_k, q5_k, q3_k, q4_k, q5_k, q3_k, q3_k, q3_k, q3_k}},
    {"nf4", "4-bit NormalFloat, blocks of 64 (QLoRA)", {nf4, q6_k, nf4, nf4, nf4, nf4, nf4, nf4, nf4}},
    {"nf4-dq",
     "nf4 with scales quantized to 8 bits",
     {nf4_dq, q6_k, nf4_dq, nf4_dq, nf4_dq, nf4_dq, nf4_dq, nf4_dq, nf4_dq}},
};

struct Fallback {
    Type from, to;
};
constexpr Fallback fallbacks[] = {
    {q4_k, iq4_nl},  {q5_k, q5_0},      {q6_k, q5_1},    {q3_k, iq4_nl},  {q2_k, iq4_nl},    {iq4_xs, iq4_nl},
    {nf4_dq, nf4},   {nf4, iq4_nl},     {nvfp4, mxfp4},  {tq1_0, iq4_nl}, {tq2_0, iq4_nl},   {q1_0, iq4_nl},
    {q2_0, iq4_nl},  {q8_k, q8_0},      {iq1_s, iq4_nl}, {iq1_m, iq4_nl}, {iq2_xxs, iq4_nl}, {iq2_xs, iq4_nl},
    {iq2_s, iq4_nl}, {iq3_xxs, iq4_nl}, {iq3_s, iq4_nl}};

}  // namespace

Role role_of(std::string_view name, bool tied) {
    const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
    if (name == "token_embd.weight") return tied ? Role::output : Role::embedding;
    if (name == "per_layer_token_embd.weight") return Role::embedding;
    if (name == "output.weight") return Role::output;
    if (has(".attn_q.") || has(".attn_q_a.") || has(".attn_q_b.")) return Role::attn_q;
    if (has(".attn_k.") || has(".attn_qkv.") || has(".attn_k_b.") || has(".attn_kv_a_mqa."))
        return Role::attn_k;
    if (has(".attn_v.") || has(".attn_v_b.")) return Role::attn_v;
    if (has(".attn_output.")) return Role::attn_output;
    if (has(".ffn_down")) return Role::ffn_down;
    if (has(".ffn_gate") || has(".ffn_up")) return Role::ffn_in;
    return Role::other;
}

std::vector<std::string_view> recipe_names(bool made_up) {
    std::vector<std::string_view> names;
    for (const Recipe& r : table) names.push_back(r.name);
    for (const TypeInfo& t : all_types())
        if (t.decode && (t.encode || made_up) && std::ranges::find(names, t.name) == names.end())
            names.push_back(t.name);
    return names;
}

Result<Recipe> find_recipe(std::string_view stated, bool made_up) {
    const std::string name = lower_case(stated);
    for (const Recipe& r : table)
        if (r.name == name) return r;
    const auto type = find_type(name);
    if (type && info(*type).decode && (info(*type).encode || made_up)) {
        Recipe r{info(*type).name, "one type for every matrix", {}};
        std::ranges::fill(r.types, *type);
        if (!info(*type).encode) r.types[size_t(Role::embedding)] = r.types[size_t(Role::output)] = q6_k;
        return r;
    }
    // Mixtures of llama.cpp, as q4_k_m.
    const std::string plain = name.substr(0, name.rfind('_'));
    if (name.size() == plain.size() + 2 && find_type(plain))
        return Error{ErrorCode::invalid_argument, "--type", cat("'", stated, "' is a mixture of types"),
                     cat("use ", plain, ", or for a mixture int4, int3 or int8")};
    std::string known;
    for (const std::string_view n : recipe_names(made_up)) known += cat(known.empty() ? "" : ", ", n);
    return Error{ErrorCode::invalid_argument, "--type",
                 cat("'", stated, made_up ? "' is not known" : "' cannot be written"), cat("use ", known)};
}

Type fitting_type(Type wanted, int64_t cols, Type real) {
    while (!row_bytes(wanted, cols)) {
        const auto* next = std::ranges::find(fallbacks, wanted, &Fallback::from);
        wanted = next == std::end(fallbacks) ? real : next->to;
    }
    return wanted;
}

}  // namespace nibble
