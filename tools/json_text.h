// JSON for scripts, from names of files and tensors, which need not be UTF-8.
// What is not becomes U+FFFD.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace nibble {

// On one line without an indent, else with that many blanks per level.
template <class Json = nlohmann::ordered_json>
std::string json_text(const Json& j, int indent = -1) {
    return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace nibble
