// Reading what a command was given: a file, or standard input where "-" stands for it.
// Standard input is read from where it stands, whatever it is: pipe, socket, file or terminal.
#pragma once

#include <string>

#include "ggml/base/result.h"

namespace nibble {

// What is there by now, some 64 KiB at most; waits for a first byte. Empty at the end.
Result<std::string> read_some_standard_input();

// To its end, at most 1 GiB. Waits as long as it takes, so that what is read never depends on timing; after a
// while without a first byte a note on stderr says so: some callers leave an empty pipe open.
Result<std::string> read_standard_input();

// The text of a file; of standard input for "-".
Result<std::string> read_input(const std::string& file);
// What a message calls it.
std::string input_name(const std::string& file);

}  // namespace nibble
