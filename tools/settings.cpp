// Settings become arguments in front of the user's own.
// An option that the user gave is left out rather than overridden, so that lists do not add up.
#include "tools/settings.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include <CLI/CLI.hpp>

#include "ggml/base/cat.h"
#include "ggml/base/folder.h"
#include "ggml/base/mapped_file.h"
#include "ggml/file/gguf_reader.h"
#include "tools/config_file.h"
#include "tools/device_options.h"
#include "tools/options.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

std::string variable(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value ? value : "";
}

fs::path user_folder(const char* xdg, std::string_view otherwise) {
    if (const std::string set = variable(xdg); set.starts_with('/')) return set;
    const std::string home = variable("HOME");
    return home.empty() ? fs::path() : fs::path(home) / otherwise;
}

// No shell has seen the value, so "~/" is up to us.
std::string at_home(const std::string& path) {
    return path.starts_with("~/") ? (fs::path(variable("HOME")) / path.substr(2)).string() : path;
}

fs::path expand(const std::string& path, const fs::path& base) {
    return base / at_home(path);  // an absolute path replaces the base
}

bool is_path(const CLI::Option& o) {
    constexpr std::string_view types[] = {"FILE", "MODEL", "TEMPLATE"};
    return std::ranges::find(types, o.get_type_name()) != std::end(types);
}

std::string dashed(std::string name) {
    std::ranges::replace(name, '_', '-');
    return name;
}

const CLI::Option* find_option(const CLI::App& command, const std::string& name) {
    const auto has = [&](const CLI::Option* o) {
        return std::ranges::find(o->get_lnames(), name) != o->get_lnames().end();
    };
    const auto options = command.get_options();
    const auto it = std::ranges::find_if(options, has);
    return it == options.end() || *it == command.get_help_ptr() || *it == command.get_help_all_ptr() ? nullptr
                                                                                                     : *it;
}

// Why the option cannot have these values; empty: it can. What they mean is its own business.
std::string misfit(const CLI::Option& o, const Settings::Item& i) {
    const int most = o.get_items_expected_max();  // 0: a switch
    if (i.is_list && most < 2) return cat("'", i.name, "' takes one value, not a list");
    if (most == 0 && !switch_value(i.values[0]))
        return cat("'", i.name, "' is true or false, not '", i.values[0], "'");
    return "";
}

// Some commands use the same word for a switch and others for a text: an item is right if it fits one of
// those that it may be for.
Result<void> check_item(const Settings::Item& i, const CLI::App& root, const std::string& origin) {
    const auto passed_over = gpu_settings_without_gpu();
    const bool for_gpu = std::ranges::find(passed_over, i.name) != passed_over.end();
    Error e{ErrorCode::invalid_argument, origin,
            cat("'", i.command, i.command.empty() ? "" : ".", i.name, "' is not a setting"),
            "its names are those of the long flags"};
    for (const CLI::App* c : root.get_subcommands({})) {
        if (!i.command.empty() && c->get_name() != i.command) continue;
        if (for_gpu) return {};
        const CLI::Option* o = find_option(*c, i.name);
        if (!o) continue;
        e.what = misfit(*o, i), e.fix = "";
        if (e.what.empty()) return {};
    }
    return e;
}

using GivenOptions = std::vector<const CLI::Option*>;

// Whether CLI11 takes a word for flags: no number, unless a flag is one, and nothing like "- x".
bool is_flag(const CLI::App& command, const std::string& word) {
    if (word.size() < 2 || word[0] != '-') return false;
    const char first = word.starts_with("--") ? (word.size() > 2 ? word[2] : ' ') : word[1];
    if (first == '-' || first == '!' || first == ' ' || first == '\n') return false;
    const bool digit = first >= '0' && first <= '9' && !word.starts_with("--");
    return !digit || command.get_option_no_throw(cat("-", first));
}

// The options that the words of a command line are for, as CLI11 reads them: a word that is another one's
// value is for none, however it begins.
GivenOptions given_options(const CLI::App& command, std::span<const std::string> args) {
    GivenOptions list;
    size_t i = 0;
    const auto add_positional = [&] {
        for (const CLI::Option* o : command.get_options())
            if (!o->nonpositional()) list.push_back(o);
    };
    // And passes over the words that are its values.
    const auto add = [&](const std::string& flag, bool has_value) {
        const CLI::Option* o = command.get_option_no_throw(flag);
        if (!o) return;
        list.push_back(o);
        if (has_value || o->get_items_expected_max() == 0) return;
        if (o->get_items_expected_min() > 0) ++i;
        if (o->get_allow_extra_args())
            while (i + 1 < args.size() && args[i + 1] != "--" && !is_flag(command, args[i + 1])) ++i;
    };
    for (; i < args.size(); ++i) {
        const std::string& word = args[i];
        if (word == "--") {
            if (i + 1 < args.size()) add_positional();
            break;
        }
        if (!is_flag(command, word)) {
            add_positional();
        } else if (word.starts_with("--")) {
            const size_t value = word.find('=');
            add(word.substr(0, value), value != word.npos);
        } else {
            // Switches in one word; what follows another option there is its value.
            for (size_t at = 1; at < word.size(); ++at) {
                const std::string flag = cat("-", word[at]);
                const CLI::Option* o = command.get_option_no_throw(flag);
                add(flag, at + 1 < word.size());
                if (!o || o->get_items_expected_max() > 0) break;
            }
        }
    }
    return list;
}

bool is_given(const CLI::Option& o, const GivenOptions& given) {
    return std::ranges::find(given, &o) != given.end();
}

// Where a setting is from: a later one wins.
enum class Strength { file, table, variable };

struct Setting {
    const CLI::Option* option;
    Strength strength;
    SettingArgument argument;
};

// In place of a weaker setting of the same option. One that the user has given stays alone.
Result<void> add_setting(std::vector<Setting>& list, const Settings::Item& i, Strength strength,
                         const std::string& origin, const CLI::App& command, const GivenOptions& given) {
    const CLI::Option* o = find_option(command, i.name);
    if (!o || is_given(*o, given)) return {};
    if (std::string what = misfit(*o, i); !what.empty()) {
        if (!i.is_list) return {};
        return Error{ErrorCode::invalid_argument, origin, std::move(what),
                     "a list for another command belongs into its table"};
    }
    std::erase_if(list, [&](const Setting& c) { return c.option == o; });
    // A switch that is off anyway, unless it is given, contradicts nothing: CLI11 would say that it does.
    if (o->get_items_expected_max() == 0 && o->get_fnames().empty() && switch_value(i.values[0]) == false)
        return {};
    for (const std::string& v : i.values) {
        const std::string value = is_path(*o) ? at_home(v) : v;
        list.push_back(
            {o, strength, {i.name, cat("--", i.name, "=", value), origin, is_path(*o) ? value : ""}});
    }
    return {};
}

// Flags without meaning unless one of several others is there; CLI11 knows those that need every one.
struct NeedsOneOf {
    std::string_view flag, others[2];
};
constexpr NeedsOneOf needs_one_of[] = {{"logprobs", {"json", "jsonl"}}};

// Leaves out what contradicts a flag or a stronger setting, and then what belongs to an option that is not
// there. Of equally strong ones that exclude one another both stay, for the user to be told.
void settle(std::vector<Setting>& list, const CLI::App& command, const GivenOptions& given) {
    const auto drop = [&](const auto& unfit) {  // all are judged before one of them goes
        std::vector<Setting> kept;
        std::ranges::remove_copy_if(list, std::back_inserter(kept), unfit);
        list.swap(kept);
        return list.size() < kept.size();
    };
    for (const Strength s : {Strength::variable, Strength::table, Strength::file})
        drop([&](const Setting& c) {
            const auto is_stronger = [&](const CLI::Option* x) {
                return is_given(*x, given) || std::ranges::any_of(list, [&](const Setting& other) {
                           return other.option == x && other.strength > s;
                       });
            };
            return c.strength == s && std::ranges::any_of(c.option->get_excludes(), is_stronger);
        });
    const auto is_there = [&](const CLI::Option* o) {
        return o && (is_given(*o, given) || std::ranges::find(list, o, &Setting::option) != list.end());
    };
    const auto is_alone = [&](const Setting& c) {
        const auto rule = std::ranges::find(needs_one_of, c.argument.name, &NeedsOneOf::flag);
        return !std::ranges::all_of(c.option->get_needs(), is_there) ||
               (rule != std::end(needs_one_of) &&
                std::ranges::none_of(rule->others, [&](std::string_view name) {
                    return is_there(find_option(command, std::string(name)));
                }));
    };
    while (drop(is_alone)) {
    }
}

Result<void> add_item(Settings& s, const ConfigItem& item) {
    const auto wrong = [&](std::string what, std::string fix) {
        return Error{ErrorCode::invalid_argument, line_of(s.file.string(), item.line), std::move(what),
                     std::move(fix)};
    };
    if (item.table == "models") {
        if (item.is_list || item.values[0].empty())
            return wrong(cat("'", item.name, "' is not a path"), "write name = \"path\"");
        if (!s.models.try_emplace(item.name, expand(item.values[0], s.file.parent_path())).second)
            return wrong(cat("'", item.name, "' has a path already"), "give each model a name of its own");
        return {};
    }
    if (item.table.empty() && dashed(item.name) == "model-folders") {
        if (!s.folders.empty())
            return wrong("'model_folders' is set already", "write one list: [\"a\", \"b\"]");
        for (const std::string& folder : item.values)
            s.folders.push_back(expand(folder, s.file.parent_path()));
        return {};
    }
    Settings::Item i{item.table, dashed(item.name), item.values, item.is_list, item.line};
    for (const Settings::Item& before : s.items)
        if (before.command == i.command && before.name == i.name)
            return wrong(cat("'", item.name, "' is set in line ", before.line, " already"),
                         "several values are a list: [\"a\", \"b\"]");
    s.items.push_back(std::move(i));
    return {};
}

Result<void> read_file(Settings& s) {
    const std::string text = NIBBLE_TRY(read_text_file(s.file));
    for (const ConfigItem& item : NIBBLE_TRY(parse_config(text, s.file.string())))
        NIBBLE_TRY(add_item(s, item));
    return {};
}

void add_folder_models(const fs::path& folder, std::vector<NamedModel>& list) {
    std::vector<NamedModel> found;
    std::error_code ec;
    for (const fs::path& p : folder_entries(folder, ec)) {
        const std::string file = p.filename().string();
        if (p.extension() == ".gguf") {
            // Of a split model the first part stands for all, under the name that the parts share.
            const auto split = parse_split_name(file);
            if (!split)
                found.push_back({p.stem().string(), p});
            else if (split->number == 1)
                found.push_back({split->prefix, p});
        } else if (fs::exists(p / "config.json", ec)) {
            found.push_back({file, p});
        }
    }
    std::ranges::sort(found, {}, &NamedModel::name);
    for (NamedModel& m : found)
        if (std::ranges::find(list, m.name, &NamedModel::name) == list.end()) list.push_back(std::move(m));
}

}  // namespace

Result<Settings> read_settings() {
    Settings s;
    std::error_code ec;
    if (std::getenv("NIBBLE_CONFIG")) {
        s.file = variable("NIBBLE_CONFIG");
    } else if (const fs::path folder = user_folder("XDG_CONFIG_HOME", ".config"); !folder.empty()) {
        if (const fs::path file = folder / "nibble/config.toml"; fs::exists(fs::symlink_status(file, ec)))
            s.file = file;  // a link to nothing is an error
    }
    if (!s.file.empty()) NIBBLE_TRY(read_file(s));
    if (const std::string set = variable("NIBBLE_MODEL_FOLDERS"); !set.empty()) {
        s.folders.clear();
        std::istringstream parts(set);
        for (std::string folder; std::getline(parts, folder, ':');)
            if (!folder.empty()) s.folders.push_back(expand(folder, {}));
    }
    if (s.folders.empty())
        if (const fs::path data = user_folder("XDG_DATA_HOME", ".local/share"); !data.empty())
            s.folders.push_back(data / "nibble/models");
    for (fs::path& folder : data_folders("models", NIBBLE_SOURCE_MODELS))
        s.folders.push_back(std::move(folder));
    return s;
}

bool asks_for_help(const CLI::App& command, std::span<const std::string> args) {
    const GivenOptions given = given_options(command, args);
    const CLI::Option* const flags[] = {command.get_help_ptr(), command.get_help_all_ptr()};
    return std::ranges::any_of(flags, [&](const CLI::Option* o) { return o && is_given(*o, given); });
}

Result<std::vector<SettingArgument>> setting_arguments(const Settings& settings, const CLI::App& root,
                                                       const CLI::App& command,
                                                       std::span<const std::string> args) {
    const GivenOptions given = given_options(command, args);
    std::vector<Setting> found;
    for (const Strength s : {Strength::file, Strength::table})
        for (const Settings::Item& i : settings.items) {
            if (i.command.empty() != (s == Strength::file)) continue;
            const std::string origin = line_of(settings.file.string(), i.line);
            NIBBLE_TRY(check_item(i, root, origin));
            if (i.command.empty() || i.command == command.get_name())
                NIBBLE_TRY(add_setting(found, i, s, origin, command, given));
        }
    for (const CLI::Option* o : command.get_options())
        for (const std::string& name : o->get_lnames()) {
            std::string upper = "NIBBLE_" + name;
            for (char& c : upper) c = c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
            const std::string value = variable(upper);
            if (value.empty() || find_option(command, name) != o || is_given(*o, given)) continue;
            const Settings::Item i{"", name, {value}, false, 0};
            NIBBLE_TRY(check_item(i, root, upper));
            NIBBLE_TRY(add_setting(found, i, Strength::variable, upper, command, given));
        }
    settle(found, command, given);
    std::vector<SettingArgument> list;
    for (Setting& c : found) list.push_back(std::move(c.argument));
    return list;
}

std::vector<NamedModel> named_models(const Settings& settings) {
    std::vector<NamedModel> list;
    for (const auto& [name, path] : settings.models) list.push_back({name, path});
    for (const fs::path& folder : settings.folders) add_folder_models(folder, list);
    return list;
}

Result<fs::path> resolve_model(const std::string& given) {
    const Settings settings = NIBBLE_TRY(read_settings());
    if (const auto alias = settings.models.find(given); alias != settings.models.end()) return alias->second;
    if (given.find('/') != std::string::npos) return fs::path(given);
    std::error_code ec;
    if (fs::exists(given, ec)) return fs::path(given);
    for (const NamedModel& m : named_models(settings))
        if (m.name == given || m.path.filename() == given || m.path.stem() == given) return m.path;
    return Error{ErrorCode::not_found, given, "is neither a file nor the name of a model",
                 "`nibble models` lists the names"};
}

}  // namespace nibble
