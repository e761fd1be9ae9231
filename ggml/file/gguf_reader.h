// Reads GGUF version 2 and 3, little-endian, from a memory mapping: nothing but metadata is copied.
// Specification: the "GGUF" document of the ggml project. Layout: magic, u32 version, u64 tensors, u64 keys,
// key-values, tensor infos, padding, data section.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ggml/base/result.h"
#include "ggml/file/metadata.h"
#include "ggml/file/tensor_info.h"

namespace nibble {

struct GgufFile {
    // Opens a file. A file of a split model (PREFIX-00001-of-0000N.gguf) must be its first part: the other
    // parts are opened beside it, their tensors follow in order, and the split.* keys disappear.
    // Errors: every size, count, offset and name that contradicts the file or the format.
    static Result<GgufFile> open(const std::filesystem::path& path);

    // One file from bytes in memory, without regard to splits. Tensors and strings point into `bytes`, which
    // `owner` keeps alive; `where` opens error messages.
    static Result<GgufFile> parse(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                  const std::string& where);

    uint32_t version = 0;
    size_t alignment = 32;  // of the data section and of each tensor in it
    Metadata metadata;
    TensorList tensors;  // empty in a vocabulary-only file
    uint64_t file_bytes = 0;
    std::vector<std::shared_ptr<const void>> owners;  // the mappings behind tensors' data
};

// The parts of a split file's name "PREFIX-00002-of-00003.gguf"; nothing for other names.
struct SplitName {
    std::string prefix;
    uint32_t number, count;  // number starts at 1
    std::string part(uint32_t n) const;
};
std::optional<SplitName> parse_split_name(const std::string& file_name);

}  // namespace nibble
