// Reads names, values, groups and examples from CLI11's own description of a command.
// Nothing about single flags is known here.
#include "tools/describe.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "ggml/base/cat.h"
#include "ggml/base/split.h"

namespace nibble {
namespace {

// CLI11 appends what its validators say.
std::string value_name(const CLI::Option& o) {
    if (o.get_items_expected_max() == 0) return "";
    const std::string type = o.get_type_name().substr(0, o.get_type_name().find(':'));
    return type == "INT" || type == "UINT" ? "N" : type == "FLOAT" ? "X" : type;
}

OptionInfo describe(const CLI::Option& o) {
    OptionInfo i;
    i.positional = !o.nonpositional();
    if (i.positional)
        i.names = {o.get_name(true)};
    else {
        for (const std::string& n : o.get_snames()) i.names.push_back("-" + n);
        for (const std::string& n : o.get_lnames()) i.names.push_back("--" + n);
    }
    i.required = o.get_required();
    i.value = value_name(o);
    i.text = o.get_description();
    if (i.value.find('|') != std::string::npos) {
        i.choices = split(i.value, '|');
        if (i.value.size() > 32) {  // a list belongs into the text
            for (size_t n = 0; n < i.choices.size(); ++n) i.text += cat(n ? ", " : ": ", i.choices[n]);
            i.value = "NAME";
        }
    }
    i.default_value = o.get_default_str();
    if (i.default_value.starts_with('[') && i.default_value.ends_with(']'))  // of a list
        i.default_value = i.default_value.substr(1, i.default_value.size() - 2);
    i.group = o.get_group();
    i.rare = i.group.starts_with("More");
    return i;
}

}  // namespace

std::string OptionInfo::label() const {
    std::string s;
    for (const std::string& n : names) s += cat(s.empty() ? "" : ",", n);
    return positional || value.empty() ? s : cat(s, " ", value);
}

CommandInfo describe(const CLI::App& command) {
    CommandInfo c{command.get_name(), command.get_description(), {}, {}};
    std::vector<std::string> groups = {"Options"};
    for (const CLI::Option* o : command.get_options()) {
        if (o == command.get_help_ptr() || o == command.get_help_all_ptr()) continue;
        c.options.push_back(describe(*o));
        if (std::ranges::find(groups, o->get_group()) == groups.end()) groups.push_back(o->get_group());
    }
    const auto rank = [&](const OptionInfo& o) {
        return o.positional ? 0 : 1 + (std::ranges::find(groups, o.group) - groups.begin());
    };
    std::ranges::stable_sort(c.options, {}, rank);
    for (std::string line : split(command.get_footer(), '\n'))
        if (line.starts_with("  ")) c.examples.push_back(line.substr(2));
    return c;
}

std::vector<CommandInfo> describe_all(const CLI::App& root) {
    std::vector<CommandInfo> list;
    for (const CLI::App* sub : root.get_subcommands({})) list.push_back(describe(*sub));
    return list;
}

std::vector<CommandInfo> describe_all(const Flags& of_one) {
    return describe_all(*of_one.command().get_parent());
}

std::vector<std::string> wrap(const std::string& text, size_t width) {
    std::vector<std::string> lines(1);
    for (const std::string& word : split(text, ' ')) {
        std::string& line = lines.back();
        if (line.empty())
            line = word;
        else if (line.size() + 1 + word.size() <= width)
            line += cat(" ", word);
        else
            lines.push_back(word);
    }
    return lines;
}

}  // namespace nibble
