// Turns a template's source into a Program; every mistake is an Error with the template's name and line.
// Grammar: Jinja's "Template Designer Documentation", without inheritance and includes.
#pragma once

#include <string>
#include <string_view>

#include "ggml/base/result.h"
#include "src/text/jinja/ast.h"

namespace nibble::jinja {

constexpr size_t max_source_bytes = size_t{4} << 20;
constexpr uint32_t max_tree_depth = 200;  // of nested statements, or of one expression

Result<Program> parse(std::string_view source, std::string name);

}  // namespace nibble::jinja
