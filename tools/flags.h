// The flags of a command, as its setup function declares them; CLI11 reads the command line.
// What includes CLI11 takes a compiler seconds, so only flags.cpp and what asks CLI11 about flags do.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ggml/base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace nibble {

// What stands behind "--switch=", or is the setting of a switch: true, false, on, off, yes, no, 1 or 0.
std::optional<bool> switch_value(std::string_view text);

// A flag or positional of a command: a handle, valid as long as the command.
class Flag {
  public:
    explicit Flag(CLI::Option* option) : option_(option) {}

    Flag group(const std::string& name) const;      // its headline in the help; "More ...": rarely needed
    Flag type_name(const std::string& name) const;  // of its value, by the conventions of describe.h
    Flag required() const;
    Flag needs(Flag other) const;
    Flag needs(const std::string& name) const;
    Flag excludes(Flag other) const;
    Flag excludes(const std::string& name) const;
    Flag range(int64_t least, int64_t most) const;  // of each value, an integer
    Flag real_range(double least, double most) const;
    Flag show_default() const;  // what its value is now
    Flag show_default(const std::string& text) const;
    Flag every() const;      // of several values all count, not the last
    Flag once_each() const;  // every(), with a flag in front of each value
    Flag comma_separated() const;

  private:
    CLI::Option* option_;
};

class Flags {
  public:
    explicit Flags(CLI::App& command) : command_(&command) {}

    // "-m,--model" with a value, or the positional "model". T: std::string, int32_t, int64_t, uint64_t,
    // double, std::vector<std::string> or std::vector<int32_t>. `to` outlives the command.
    template <class T>
    Flag value(const std::string& names, T& to, const std::string& help) const;
    // With a value that is handed over each time.
    Flag each_value(const std::string& names, std::function<void(const std::string&)> take,
                    const std::string& help) const;
    // Likewise; an Error is one of the command line.
    Flag each_checked(const std::string& names, std::function<Result<void>(const std::string&)> take,
                      const std::string& help) const;
    // Likewise of a flag that may be repeated: all its values count.
    Flag all_checked(const std::string& names, std::function<Result<void>(const std::string&)> take,
                     const std::string& help) const;
    // Likewise of a list in one text: what repetitions give is joined by commas.
    Flag joined_value(const std::string& names, std::function<void(const std::string&)> take,
                      const std::string& help) const;
    // Without a value. "--x,!--no-x" can also be switched off.
    Flag on(const std::string& names, bool& to, const std::string& help) const;

    std::optional<Flag> find(const std::string& name) const;  // among those declared so far
    void examples(const std::string& lines) const;            // at the end of the help

    const CLI::App& command() const { return *command_; }

  private:
    CLI::App* command_;
};

}  // namespace nibble
