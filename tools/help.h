// --help and --help-all of every command: grouped, a screen long, with defaults and examples.
// One formatter for the whole program.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace nibble {

class HelpFormatter : public CLI::FormatterBase {
  public:
    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

}  // namespace nibble
