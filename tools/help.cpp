// Lays out what describe.h reads: names on the left, text and default wrapped on the right.
// The width is the terminal's, 80 columns elsewhere.
#include "tools/help.h"

#include <algorithm>

#include <sys/ioctl.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "tools/describe.h"

namespace nibble {
namespace {

constexpr size_t name_columns = 24;

size_t screen_width() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return std::clamp<size_t>(size.ws_col, 60, 120);
}

std::string row(std::string left, const std::string& text, size_t width) {
    std::string out = "  " + std::move(left);
    size_t column = out.size();
    if (column >= name_columns) out += "\n", column = 0;
    for (const std::string& line : wrap(text, width - name_columns)) {
        out += cat(std::string(name_columns - column, ' '), line, "\n");
        column = 0;
    }
    return out;
}

std::string help_of_program(const CLI::App& app, size_t width) {
    std::string out =
        cat(app.get_description(), "\nUsage: nibble COMMAND ...; on a terminal, nibble alone is a chat\n\n");
    for (const CommandInfo& c : describe_all(app)) out += row(c.name, c.summary, width);
    return cat(out, "\n`nibble COMMAND --help` shows a command's options, with examples.\n",
               "`nibble --version` prints the version.\n");
}

std::string help_of_command(const CommandInfo& c, bool all, size_t width) {
    std::string positionals, out;
    std::string_view group;
    bool left_out = false;
    for (const OptionInfo& o : c.options) {
        if (o.rare && !all) {
            left_out = true;
            continue;
        }
        if (o.positional)
            positionals += o.required ? cat(" ", o.names[0]) : cat(" [", o.names[0], "]");
        else if (group != o.group)
            out += cat(group = o.group, ":\n");
        out +=
            row(o.label(), o.default_value.empty() ? o.text : cat(o.text, " [", o.default_value, "]"), width);
    }
    out = cat(c.summary, "\nUsage: nibble ", c.name, positionals, " [options]\n", out, "Examples:\n");
    for (const std::string& e : c.examples) out += cat("  ", e, "\n");
    if (left_out) out += cat("`nibble ", c.name, " --help-all` shows the rarer options too.\n");
    return out;
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string /*name*/,
                                     CLI::AppFormatMode mode) const {
    if (!app->get_parent()) return help_of_program(*app, screen_width());
    return help_of_command(describe(*app), mode == CLI::AppFormatMode::All, screen_width());
}

}  // namespace nibble
