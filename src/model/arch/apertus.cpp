// apertus: Apertus 8B and 70B; llama with a norm on every head of queries and keys and a feed-forward without
// a gate, whose activation (xIELU, arXiv:2411.13010) has learned numbers of its own in every layer.
#include <cmath>

#include "ggml/base/cat.h"
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.attention_layernorm", "blk.{}.attn_norm"},
    {"model.layers.{}.feedforward_layernorm", "blk.{}.ffn_norm"},
    {"model.layers.{}.mlp.act_fn.alpha_p", "blk.{}.xielu.alpha_p"},
    {"model.layers.{}.mlp.act_fn.alpha_n", "blk.{}.xielu.alpha_n"},
    {"model.layers.{}.mlp.act_fn.beta", "blk.{}.xielu.beta"},
    {"model.layers.{}.mlp.act_fn.eps", "blk.{}.xielu.eps"},
};

struct Number {
    std::string_view name;
    std::vector<float> Hyper::*list;
};
constexpr Number numbers[] = {{"xielu.alpha_p", &Hyper::xielu_alpha_p},
                              {"xielu.alpha_n", &Hyper::xielu_alpha_n},
                              {"xielu.beta", &Hyper::xielu_beta},
                              {"xielu.eps", &Hyper::xielu_eps}};

void fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_theta = 12000000;
    standard_fields(f, h);
    for (const Number& n : numbers) f.numbers(n.name, "", h.*n.list);
    f.expect("hidden_act", {"xielu"});
    f.expect("qk_norm", {"true"});
    f.expect("post_norm", {"false"});
    f.expect("quantization_config", {});
}

Result<void> take_numbers(TensorMap& tensors, Hyper& h) {
    for (const Number& n : numbers)
        for (uint32_t i = 0; i < h.n_layers; ++i) {
            const std::string name = cat("blk.", i, ".", n.name);
            if (!tensors.contains(name)) return Error{ErrorCode::corrupt, name, "is missing", ""};
            (h.*n.list).push_back(NIBBLE_TRY(one_number(tensors, name, 0)));
            tensors.erase(name);
        }
    return {};
}

float softplus(float x) { return std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }

// As the kernels take them. Epsilon keeps implementations away from the cancellation close to zero; without
// it the values there differ by less than it.
Result<XieluParams> activation(const Hyper& h, size_t layer) {
    for (const Number& n : numbers)
        if ((h.*n.list).size() != h.n_layers || !std::isfinite((h.*n.list)[layer]))
            return Error{ErrorCode::corrupt, std::string(n.name), "is not a number for each layer", ""};
    if (std::fabs(h.xielu_eps[layer]) > 1e-5f)
        return Error{ErrorCode::unsupported, "xielu.eps", cat("is ", h.xielu_eps[layer], ", not close to 0"),
                     ""};
    const float beta = h.xielu_beta[layer];
    return XieluParams{softplus(h.xielu_alpha_p[layer]), beta + softplus(h.xielu_alpha_n[layer]), beta};
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    set_dense_ffn(s, Activation::xielu, false);
    for (size_t i = 0; i < s.layers.size(); ++i)
        std::get<DenseFfnSpec>(s.layers[i].ffn).xielu = NIBBLE_TRY(activation(h, i));
    return s;
}

}  // namespace

extern const Architecture apertus_arch;
const Architecture apertus_arch{"apertus", {"apertus"}, fields, build,   standard_names(),
                                false,     names,       false,  nullptr, take_numbers};

}  // namespace nibble
