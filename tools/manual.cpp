// The manual page in roff's man macros, from the same description as the help.
// Text is escaped: a dot at the beginning of a line, backslashes, dashes.
#include "ggml/base/cat.h"
#include "tools/completion.h"

namespace nibble {
namespace {

std::string roff(std::string_view text) {
    std::string s;
    for (const char c : text) {
        if (c == '\\')
            s += "\\e";
        else if (c == '-')
            s += "\\-";
        else if ((c == '.' || c == '\'') && (s.empty() || s.back() == '\n'))
            s += cat("\\&", c);
        else
            s += c;
    }
    return s;
}

std::string option_entry(const OptionInfo& o) {
    std::string names;
    for (const std::string& n : o.names) names += cat(names.empty() ? "" : ", ", "\\fB", roff(n), "\\fR");
    if (!o.positional && !o.value.empty()) names += cat(" \\fI", roff(o.value), "\\fR");
    const std::string standard = o.default_value.empty() ? "" : cat(" [", roff(o.default_value), "]");
    return cat(".TP\n", names, "\n", roff(o.text), standard, "\n");
}

constexpr std::string_view common_sections = R"(.SH CONFIGURATION
\fI~/.config/nibble/config.toml\fR ($XDG_CONFIG_HOME is respected, $NIBBLE_CONFIG names another file) sets long flags
for every command that has them; tables named after commands set them for one. \fBmodel_folders\fR lists folders of
models, the table \fB[models]\fR gives names to paths.
.SH ENVIRONMENT
\fBNIBBLE_CTX\fR sets \fB\-\-ctx\fR, \fBNIBBLE_TOP_K\fR sets \fB\-\-top\-k\fR and so on for every long flag;
empty ones count as not set.
Flags win over variables, variables over the file.
\fBNIBBLE_MODEL_FOLDERS\fR lists folders of models, separated by colons.
\fBNO_COLOR\fR is respected.
.SH EXIT STATUS
0: done. 1: it could not be done. 2: the command line asks for something impossible. 130: interrupted.
)";

}  // namespace

std::string manual_page(const std::vector<CommandInfo>& commands, std::string_view version) {
    std::string out =
        cat(".TH NIBBLE 1 \"\" \"nibble ", roff(version), "\"\n.SH NAME\nnibble \\- large language ",
            "models on this machine\n.SH SYNOPSIS\n.B nibble\n[\\fICOMMAND\\fR [\\fIoptions\\fR]]\n",
            ".SH DESCRIPTION\nOn a terminal, \\fBnibble\\fR alone is \\fBnibble chat\\fR.\n");
    for (const CommandInfo& c : commands) {
        out += cat(".SH NIBBLE ", roff(c.name), "\n", roff(c.summary), ".\n");
        std::string_view group = "Options";
        for (const OptionInfo& o : c.options) {
            if (!o.positional && o.group != group) out += cat(".SS ", roff(group = o.group), "\n");
            out += option_entry(o);
        }
        out += ".SS Examples\n.nf\n";
        for (const std::string& e : c.examples) out += cat(roff(e), "\n");
        out += ".fi\n";
    }
    return cat(out, common_sections);
}

}  // namespace nibble
