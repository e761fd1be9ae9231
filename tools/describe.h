// What a command line takes, as plain data read from the CLI11 app: for the help, completions and the manual.
// Conventions: a value that is one of several is written "a|b|c"; FILE, FOLDER, MODEL and TEMPLATE say what
// to complete; groups whose name begins with "More" are rarely needed.
#pragma once

#include <string>
#include <vector>

#include "tools/cli.h"

namespace nibble {

struct OptionInfo {
    std::vector<std::string> names;  // "-m", "--model"; of a positional: its name
    bool positional = false, required = false, rare = false;
    std::string value;                 // what follows: "N", "FILE"; empty: a flag
    std::vector<std::string> choices;  // of the value; empty: free
    std::string text, default_value, group;

    std::string label() const;  // "-m,--model MODEL"
};

struct CommandInfo {
    std::string name, summary;
    std::vector<OptionInfo> options;    // positionals first; the help flags are left out
    std::vector<std::string> examples;  // command lines, from the footer
};

// "Options" is the first group, the others are in the order in which they appeared.
CommandInfo describe(const CLI::App& command);
std::vector<CommandInfo> describe_all(const CLI::App& root);
std::vector<CommandInfo> describe_all(const Flags& of_one);  // all commands of the program

// Cut at spaces into lines of at most `width` characters; a longer word gets a line of its own.
std::vector<std::string> wrap(const std::string& text, size_t width);

}  // namespace nibble
