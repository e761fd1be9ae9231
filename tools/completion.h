// Completion scripts for shells, and the manual page: made from what describe.h reads.
// Pure functions from data to text.
#pragma once

#include <string>

#include "tools/describe.h"

namespace nibble {

std::string bash_completion(const std::vector<CommandInfo>& commands);
std::string zsh_completion(const std::vector<CommandInfo>& commands);
std::string fish_completion(const std::vector<CommandInfo>& commands);
std::string manual_page(const std::vector<CommandInfo>& commands, std::string_view version);  // roff

}  // namespace nibble
