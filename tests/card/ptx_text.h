// PTX as text: pieces of statements, and declarations of variables.
// What kernels are made of in parse.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nibble::card {

std::string_view trimmed(std::string_view s);
// Comments become spaces; lines stay where they are.
std::string without_comments(std::string_view ptx);
// At commas that no brackets enclose.
std::vector<std::string> split_operands(std::string_view s);
// The position behind the bracket that closes the one at `open`.
size_t closing(std::string_view s, size_t open);

// "32" of ".b32", in bytes; 4 for ".pred".
size_t type_bytes(std::string_view type);

bool is_number(std::string_view s);
// The bits of an integer, 0f3F800000 or 0d3FF0000000000000.
uint64_t number(std::string_view s);

// ".global .align 8 .b8 name[16] = {...}"
struct Variable {
    std::string name;
    size_t bytes = 0, element = 1, align = 1;
    std::string initial;
};
Variable variable(std::string_view declaration);

}  // namespace nibble::card
