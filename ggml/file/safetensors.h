// Reads safetensors: one file, or the shards that an index names. Nothing is copied but the header.
// Specification: the README of huggingface/safetensors. Layout: u64 N, N bytes of JSON, data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ggml/base/result.h"
#include "ggml/file/tensor_info.h"

namespace nibble {

// The tensors of one file in the order of their data, which must cover the file without gap or overlap.
// Shapes are stored row-major, so ne is the shape reversed; of more than 4 dimensions the slowest are folded
// into ne[3]. Dtypes without a Type are handed out raw (see TensorInfo::dtype). `where` opens error messages.
Result<std::vector<TensorInfo>> parse_safetensors(std::span<const std::byte> file, const std::string& where);

struct SafetensorsModel {
    TensorList tensors;
    uint64_t file_bytes = 0;
    std::vector<std::shared_ptr<const void>> owners;  // the mappings behind tensors' data
};

Result<SafetensorsModel> open_safetensors(const std::filesystem::path& file);

// Opens all shards of a *.safetensors.index.json, which must be in the same folder: its weight_map maps every
// tensor to a plain file name. Tensors that a shard has beyond the map are ignored.
Result<SafetensorsModel> open_safetensors_index(const std::filesystem::path& index);

}  // namespace nibble
