// The little Unicode that template strings need: UTF-8 steps, white space, simple case mapping, printability.
// Bytes that are not valid UTF-8 count as one code point each and pass through unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nibble::jinja {

struct CodePoint {
    uint32_t value = 0;   // 0xDC00 + byte for a byte that is not valid UTF-8
    uint32_t length = 1;  // bytes it takes in the input
};

// Precondition: at < s.size().
CodePoint decode(std::string_view s, size_t at);
void encode(uint32_t code_point, std::string& out);  // a value 0xDC80–0xDCFF gives that byte back

bool is_ascii(std::string_view s);
size_t count_code_points(std::string_view s);
size_t byte_offset(std::string_view s, size_t code_points);  // clamped to s.size()
size_t previous(std::string_view s, size_t at);              // start of the code point that ends at `at` > 0

bool is_space(uint32_t c);      // as Python's str.isspace
bool is_line_end(uint32_t c);   // as Python's str.splitlines
bool is_printable(uint32_t c);  // as Python's repr decides, for the ranges that text uses
bool is_letter(uint32_t c);     // any code point of a script, digits and punctuation excluded
uint32_t to_upper(uint32_t c);  // one-to-one mappings of Latin, Greek, Cyrillic and Armenian
uint32_t to_lower(uint32_t c);

}  // namespace nibble::jinja
