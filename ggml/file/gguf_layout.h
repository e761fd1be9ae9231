// Constants of the GGUF format that the reader, the splitter and the writer share.
// Specification: the "GGUF" document of the ggml project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nibble::gguf {

inline constexpr uint32_t current_version = 3;
inline constexpr uint32_t default_alignment = 32;
inline constexpr uint32_t quantization_version = 2;                 // of the block layouts in use since 2023
inline constexpr size_t min_key_value_bytes = 8 + 1 + 4 + 1;        // length, key, type, value
inline constexpr size_t min_tensor_info_bytes = 8 + 1 + 4 + 4 + 8;  // length, name, n_dims, type, offset

inline constexpr std::string_view alignment_key = "general.alignment";
inline constexpr std::string_view quantization_version_key = "general.quantization_version";
inline constexpr std::string_view split_no_key = "split.no";  // from 0
inline constexpr std::string_view split_count_key = "split.count";
inline constexpr std::string_view split_tensors_key = "split.tensors.count";  // in all parts together

}  // namespace nibble::gguf
