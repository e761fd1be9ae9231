// NFC: Unicode canonical composition, which some tokenizers apply to text (Unicode Standard Annex 15).
// Bytes that are not UTF-8 stay where they are and separate what is around them.
#pragma once

#include <string>
#include <string_view>

namespace nibble {

// Whether the text surely is in NFC; quick, and true for nearly every text.
bool is_nfc(std::string_view text);
std::string to_nfc(std::string_view text);

}  // namespace nibble
