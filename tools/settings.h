// What the user has settled once: ~/.config/nibble/config.toml and NIBBLE_* variables; and names of models.
// Flags win over variables, variables over the file, its [run], [chat], ... tables over what stands above
// them.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tools/cli.h"

namespace nibble {

struct Settings {
    struct Item {
        std::string command, name;  // command: empty: of every command that has the option
        std::vector<std::string> values;
        bool is_list = false;
        size_t line = 0;
    };
    std::filesystem::path file;  // empty: there is none
    std::vector<Item> items;
    std::map<std::string, std::filesystem::path> models;  // the table [models]
    std::vector<std::filesystem::path> folders;           // of models: chosen ones, then the bundled one
};

// The file is $NIBBLE_CONFIG (empty: none), else $XDG_CONFIG_HOME/nibble/config.toml. Folders are
// `model_folders`, or $NIBBLE_MODEL_FOLDERS separated by ':', or $XDG_DATA_HOME/nibble/models.
Result<Settings> read_settings();

struct SettingArgument {
    std::string name;    // of the option, without dashes
    std::string text;    // "--name=value"
    std::string origin;  // "NIBBLE_CTX", or the file and its line
    std::string path;    // the value, if it names a file; else empty
};

// Whether the words of a command line ask for the command's help: as a value of an option they do not.
bool asks_for_help(const CLI::App& command, std::span<const std::string> args);

// What the settings add to a command line with the words `args`: options that are not given there and
// exclude neither one that is nor a stronger setting. An Error names one of the file that no command has, or
// what is no value for it.
Result<std::vector<SettingArgument>> setting_arguments(const Settings& settings, const CLI::App& root,
                                                       const CLI::App& command,
                                                       std::span<const std::string> args);

// The models that names stand for: what [models] and the folders hold, in this order.
struct NamedModel {
    std::string name;
    std::filesystem::path path;
};
std::vector<NamedModel> named_models(const Settings& settings);

// A path, an alias of [models], or a file or folder in a model folder, with or without ".gguf".
Result<std::filesystem::path> resolve_model(const std::string& given);

}  // namespace nibble
