// The command line before CLI11 reads it, and what is wrong with it in the words of this program.
// Nothing about single commands is known here.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ggml/base/result.h"

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace nibble {

// Standard input and outputs that the caller has closed are opened on /dev/null, so that no file that is
// opened later takes their numbers: messages would be written into it. Writing to a closed output stays an
// error.
void open_standard_files();

// "--name=" becomes two words, because CLI11 would take the next word for the value. Words behind "--" stay.
std::vector<std::string> with_empty_values(std::span<const std::string> args, const CLI::App& command);

// The known word that `word` is probably meant to be: few letters differ, or one begins with the other.
// Empty: none.
std::string nearest(std::string_view word, std::span<const std::string> known);

// An option whose value is empty and names something: a model, a file, a type. An unset variable of a shell
// gives such a value, and what is taken when the option is left out is not what was meant.
Result<void> refuse_empty_values(const CLI::App& command);

Error unknown_command(const CLI::App& root, const std::string& name);

// The message of a command line that CLI11 refuses, with its line feed. `command` is what it begins with.
std::string usage_message(const CLI::App& root, const CLI::Error& e, const std::string& command);

}  // namespace nibble
