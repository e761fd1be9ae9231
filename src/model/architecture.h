// Architecture: how one family of models is named and described; each is a file in src/model/arch.
// What such files share; opened_model.h uses them.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/model/hyper.h"
#include "src/model/source.h"
#include "src/model/spec.h"

namespace nibble {

// More than any real model, and small enough that a damaged file cannot make us allocate by it.
inline constexpr uint32_t max_layers = 1024, max_width = 1u << 20;

// A Hugging Face tensor name and its canonical (GGUF) one; "{}" stands for the layer number, and a trailing
// ".weight" or ".bias" is carried over. A canonical name that is empty: the tensor is left out, because
// config.json states what it holds. An hf name that ends in '*' stands for everything that begins so; left
// out, it is part of the model that is not implemented, and OpenedModel::notes says so. With Storage::expert
// a second "{}" in the hf name is the number of the expert.
struct NamePair {
    std::string_view hf, canonical;
    Storage storage = Storage::same;
};

// What models that see images have besides the text model, which alone runs.
inline constexpr NamePair image_names[] = {
    {"vision_tower.*", ""},
    {"multi_modal_projector.*", ""},
    {"model.vision_tower.*", ""},
    {"model.multi_modal_projector.*", ""},
};

// Experts as Mixtral names them.
inline constexpr NamePair block_sparse_moe_names[] = {
    {"model.layers.{}.block_sparse_moe.gate", "blk.{}.ffn_gate_inp"},
    {"model.layers.{}.block_sparse_moe.experts.{}.w1", "blk.{}.ffn_gate_exps", Storage::expert},
    {"model.layers.{}.block_sparse_moe.experts.{}.w2", "blk.{}.ffn_down_exps", Storage::expert},
    {"model.layers.{}.block_sparse_moe.experts.{}.w3", "blk.{}.ffn_up_exps", Storage::expert},
};

// Several lists as one, looked up in this order.
template <size_t... n>
constexpr std::array<NamePair, (n + ...)> joined(const NamePair (&... lists)[n]) {
    std::array<NamePair, (n + ...)> all{};
    size_t at = 0;
    const auto append = [&](const auto& list) {
        for (const NamePair& pair : list) all[at++] = pair;
    };
    (append(lists), ...);
    return all;
}

// Tensors by canonical name. The views point into the TensorFile.
using TensorMap = std::unordered_map<std::string, TensorSource>;

// An Error names the field that no model can have so, and `where`.
Result<void> check_ranges(const Hyper& h, const std::string& where);

struct Architecture {
    std::string_view gguf;             // general.architecture
    std::vector<std::string_view> hf;  // values of model_type
    void (*fields)(Fields&, Hyper&);   // every hyperparameter, both names
    Result<ModelSpec> (*build)(const Hyper&, bool from_hf, const TensorMap&);
    std::span<const NamePair> names;
    // GGUF files of this architecture hold query and key rows reordered for adjacent-pair rotation.
    bool gguf_permutes_qk = false;
    std::span<const NamePair> own_names = {};  // looked up before `names`
    // Layers that guess further ahead are those of ModelSpec::predictor; elsewhere they are left out.
    bool predicts = false;
    // What config.json must say besides its model_type, where that is the name of several architectures.
    bool (*is_of)(const nlohmann::json& config) = nullptr;
    // Hyperparameters that folders keep as tensors, which it takes out of the map.
    Result<void> (*take_numbers)(TensorMap&, Hyper&) = nullptr;
};

std::span<const Architecture* const> all_architectures();  // collected from src/model/arch at build time

// The names shared by the Llama-like families.
std::span<const NamePair> standard_names();
// How many layers behind the others guess tokens further ahead; to be read before the sizes.
void next_layer_fields(Fields& f, Hyper& h);
// The hyperparameters shared by decoder-only transformers with RoPE and RMS norm.
void standard_fields(Fields& f, Hyper& h);
void size_fields(Fields& f, Hyper& h);  // its two halves
void rope_fields(Fields& f, Hyper& h);
// Which pairs rotate by time, height and width of an image (Qwen-VL, arXiv:2409.12191, section 2.1): of text
// alone the three are the same, but files state it.
void section_fields(Fields& f, Hyper& h);

// Reads which layers slide: `attention.sliding_window_pattern` or `layer_types`; where neither is stated,
// every `period`-th layer does not (0: all slide, 1: none), the last of each period or the first.
void sliding_fields(Fields& f, Hyper& h, uint32_t period, bool full_first = false);
// The same for families whose readers want the pattern stated even where it is the usual one.
void stated_sliding_fields(Fields& f, Hyper& h, uint32_t period, bool full_first = false);
// Which layers rotate, where config.json lists their bases (`layer_rope_theta`), zero for those that do not.
void rotation_fields(Fields& f, Hyper& h);
// What the hyperparameters say without further knowledge of the family; an architecture adds the rest.
// `style`: of the rotation, as the file stores queries and keys.
Result<ModelSpec> standard_spec(const Hyper& h, RopeStyle style, const TensorMap& tensors);
// How queries grow with their position (Hyper::query_growth): with every original context.
Result<PositionScaleParams> query_growth(const Hyper& h);
// The one number that a tensor holds; `otherwise` where there is none, or no contents yet.
Result<float> one_number(const TensorMap& tensors, const std::string& name, float otherwise);
// The same change to every layer.
void set_qk_norm(ModelSpec& s, QkNorm qk_norm);
void set_dense_ffn(ModelSpec& s, Activation act, bool gated);
// Layers that do not attend (Hyper::attends) carry a state instead.
Result<void> set_states(ModelSpec& s, const Hyper& h,
                        std::variant<DeltaNetSpec, Mamba2Spec, ShortConvSpec> mixer);
// Their sizes, which GGUF names after those of a state space; in config.json by these names.
struct StateNames {
    std::string_view taps, k_heads, v_heads, k_dim, v_dim;
};
void state_fields(Fields& f, Hyper& h, const StateNames& names);
// The same of what files say of them: every `period`-th layer attends where nothing else is stated.
void attending_fields(Fields& f, Hyper& h, uint32_t period);
// Or they list key-value heads, which layers that do not attend have none of: that list, where it is not
// stated.
void list_kv_heads(Hyper& h);

// Experts: how many there are and how many a token uses.
void expert_fields(Fields& f, Hyper& h);
// How they are chosen, which GGUF says by a number: 1 softmax, 2 sigmoid; as h.gating is where it is silent.
void gating_fields(Fields& f, Hyper& h);
// How many layers come before those with experts, which config.json says as `hf` or layer by layer.
void dense_fields(Fields& f, Hyper& h, std::string_view hf);
// Layers that have a router get experts; the others stay dense. `beside`: next to what they are without.
void set_experts(ModelSpec& s, const Hyper& h, const TensorMap& tensors, bool beside = false);

}  // namespace nibble
