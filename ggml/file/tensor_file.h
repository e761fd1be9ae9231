// The front of the module: a model on disk as named tensors plus what its format says about them.
// A GGUF file (whole or split) or a Hugging Face folder of safetensors, behind one interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ggml/base/result.h"
#include "ggml/file/metadata.h"
#include "ggml/file/tensor_info.h"

namespace nibble {

// Owns the mappings; tensor data and string lists stay valid for its life, across moves. Read-only and
// without caches, so that threads may share it. Nothing is read ahead: pages come from disk when they are
// touched.
class TensorFile {
  public:
    enum class Kind { gguf, hf };

    // `path` may be
    //   a GGUF file, or the first part of a split one;
    //   a folder with config.json and model.safetensors, its index and shards, or one other .safetensors
    //   file; a .safetensors file in such a folder (with all shards of its index when it is one of them); a
    //   folder with one GGUF model and no checkpoint.
    // Errors name what is missing and, for a folder, what was found.
    static Result<TensorFile> open(const std::filesystem::path& path);

    // A model that exists in memory only, of kind gguf. `owner` keeps the tensors' data alive; null when they
    // have none. `disposable`: the data may be given back page by page after use, and every tensor has pages
    // of its own.
    static Result<TensorFile> in_memory(Metadata metadata, std::vector<TensorInfo> tensors,
                                        std::shared_ptr<const void> owner, bool disposable);
    // Whether release_pages() may be called on tensor data that are no longer needed: true of mapped files.
    bool disposable() const { return disposable_; }
    // What of the data is in memory because there is no file behind it, and free once it is disposed of.
    uint64_t memory_bytes() const { return memory_bytes_; }

    Kind kind() const { return kind_; }
    // The file that was opened (the first part of a split model), or the folder.
    const std::filesystem::path& path() const { return path_; }

    std::span<const TensorInfo> tensors() const { return tensors_.all(); }  // in file order
    const TensorInfo* find(std::string_view name) const { return tensors_.find(name); }
    // Like find(), but a missing tensor is an Error naming it and the file.
    Result<const TensorInfo*> require(std::string_view name) const;

    const Metadata& metadata() const { return metadata_; }     // GGUF; empty for a folder
    const nlohmann::json& config() const { return *config_; }  // folder: config.json, an object; else null
    // Another file of the folder (tokenizer.json, generation_config.json, chat_template.jinja, …), read now;
    // nothing when it does not exist or the model is a GGUF file. `name` is a plain file name.
    Result<std::optional<std::string>> text(std::string_view name) const;

    uint64_t file_bytes() const { return file_bytes_; }  // of all files that hold tensors
    uint64_t tensor_bytes() const;                       // of the tensors alone

  private:
    TensorFile();
    static Result<TensorFile> open_gguf(const std::filesystem::path& path);
    static Result<TensorFile> open_hf(const std::filesystem::path& folder,
                                      const std::filesystem::path& weights);
    static Result<TensorFile> open_folder(const std::filesystem::path& folder);
    static Result<TensorFile> open_safetensors_path(const std::filesystem::path& file);

    Kind kind_ = Kind::gguf;
    std::filesystem::path path_;
    TensorList tensors_;
    Metadata metadata_;
    std::shared_ptr<const nlohmann::json> config_;
    bool disposable_ = true;
    uint64_t file_bytes_ = 0, memory_bytes_ = 0;
    std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace nibble
