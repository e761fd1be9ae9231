// JSON from files that are not trusted: the parse fails with an Error, never with an exception.
// Nesting is bounded before the parser runs, so that later recursive walks stay shallow.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "ggml/base/json_depth.h"
#include "ggml/base/result.h"

namespace nibble {

struct JsonLimits {
    int max_depth = 64;
    bool unique_top_keys = false;  // refuse a root object that names a key twice (JSON itself allows it)
};

// Parses one document. `where` opens the error message, which gives the byte that is wrong.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& where, JsonLimits limits = {});

// Reads and parses a file whose root must be an object.
Result<nlohmann::json> read_json_object(const std::filesystem::path& path, size_t max_bytes);

}  // namespace nibble
