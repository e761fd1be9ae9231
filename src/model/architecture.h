// Architecture: how one family of models is named and described; each is a file in src/model/arch.
// open_model() goes from a TensorFile to a ModelSpec and canonically named tensors.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/model/hyper.h"
#include "src/model/spec.h"

namespace nibble {

// A Hugging Face tensor name and its canonical (GGUF) one; "{}" stands for the layer number, and a trailing
// ".weight" or ".bias" is carried over.
struct NamePair {
    std::string_view hf, canonical;
};

// Tensors by canonical name. The views point into the TensorFile.
using TensorMap = std::unordered_map<std::string, const TensorInfo*>;

struct Architecture {
    std::string_view gguf;             // general.architecture
    std::vector<std::string_view> hf;  // values of model_type
    void (*fields)(Fields&, Hyper&);   // every hyperparameter, both names
    Result<ModelSpec> (*build)(const Hyper&, bool from_hf, const TensorMap&);
    std::span<const NamePair> names;
    // GGUF files of this architecture hold query and key rows reordered for adjacent-pair rotation.
    bool gguf_permutes_qk = false;
};

std::span<const Architecture* const> all_architectures();  // collected from src/model/arch at build time

// The names shared by the Llama-like families.
std::span<const NamePair> standard_names();
// The hyperparameters shared by decoder-only transformers with RoPE and RMS norm.
void standard_fields(Fields& f, Hyper& h);

// An opened, understood and checked model; nothing is loaded yet.
struct OpenedModel {
    TensorFile file;
    const Architecture* arch = nullptr;
    Hyper hyper = {};
    ModelSpec spec = {};
    TensorMap tensors = {};
};

Result<std::unique_ptr<OpenedModel>> open_model(TensorFile file);

// The canonical name of a Hugging Face tensor, or nothing when the architecture has none for it.
std::optional<std::string> canonical_name(std::string_view hf, std::span<const NamePair> names);

}  // namespace nibble
