// open_model(): from a TensorFile to a ModelSpec and canonically named tensors, by the architecture that the
// file names.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"
#include "ggml/file/tensor_file.h"
#include "src/model/architecture.h"
#include "src/model/hyper.h"
#include "src/model/spec.h"

namespace nibble {

// An opened, understood and checked model; nothing is loaded yet.
struct OpenedModel {
    TensorFile file;
    const Architecture* arch = nullptr;
    Hyper hyper = {};
    ModelSpec spec = {};
    TensorMap tensors = {};
    std::vector<std::string> notes = {};  // what a person should know, a line each
};

Result<std::unique_ptr<OpenedModel>> open_model(TensorFile file);

// Forgets the layer that guesses further ahead, for who does not use it.
void drop_predictor(OpenedModel& model);

// The canonical name of a Hugging Face tensor, or nothing when the architecture has none for it.
std::optional<std::string> canonical_name(std::string_view hf, std::span<const NamePair> names);

}  // namespace nibble
