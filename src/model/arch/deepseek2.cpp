// deepseek2: DeepSeek V2, V3, R1 and what is built like them (Kimi K2, Moonlight, GLM 4.7 Flash).
// Latent attention, many small experts beside shared ones, chosen by softmax (V2) or by sigmoid with a bias
// (V3), the first layers dense. Rotation in adjacent pairs.
#include "src/model/arch/deepseek.h"

namespace nibble {
namespace {

// How experts are chosen, which config.json says by its model_type.
void choice_fields(Fields& f, Hyper& h) {
    std::string family = "deepseek_v2", method = "greedy";
    f.optional("", "model_type", family);
    f.optional("", "topk_method", method);
    if (f.from_hf()) h.gating = family == "deepseek_v2" ? Gating::softmax : Gating::sigmoid;
    gating_fields(f, h);
    const bool sigmoid = h.gating == Gating::sigmoid;
    if (sigmoid)
        f.expect("topk_method", {"noaux_tc"});
    else
        f.expect("topk_method", {"greedy", "group_limited_greedy"});
    f.expect("scoring_func", {sigmoid ? "sigmoid" : "softmax"});
    if (!sigmoid) f.expect("norm_topk_prob", {"false"});  // implementations differ in what it then means
    const bool groups =
        f.is_writing() ? h.n_expert_groups > 1 : sigmoid || method != "greedy" || !f.from_hf();
    if (!groups) return;
    const auto group_field = [&](std::string_view gguf, std::string_view hf, uint32_t& value) {
        f.from_hf() ? f.required("", hf, value) : f.optional(gguf, "", value);
    };
    group_field("expert_group_count", "n_group", h.n_expert_groups);
    group_field("expert_group_used_count", "topk_group", h.n_expert_groups_used);
}

void fields(Fields& f, Hyper& h) {
    next_layer_fields(f, h);
    latent_fields(f, h);
    choice_fields(f, h);
    f.expect("moe_layer_freq", {"1"});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) { return latent_spec(h, tensors); }

}  // namespace

extern const Architecture deepseek2_arch;
const Architecture deepseek2_arch{"deepseek2",      {"deepseek_v2", "deepseek_v3", "glm4_moe_lite"},
                                  fields,           build,
                                  standard_names(), false,
                                  latent_names,     true};

}  // namespace nibble
