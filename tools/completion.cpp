// One script per shell: commands, options, and what can be said about their values.
// Names of models and templates are asked from the program when they are needed.
#include "tools/completion.h"

#include "ggml/base/cat.h"
#include "tools/template_option.h"

namespace nibble {
namespace {

bool takes_file(const OptionInfo& o) {
    return o.value == "FILE" || o.value == "MODEL" || o.value == "TEMPLATE" || o.value == "FOLDER";
}

// Words that a value may be, as far as they are known now.
std::string value_words(const OptionInfo& o) {
    if (o.value == "TEMPLATE") return joined(template_names());
    return joined(o.choices);
}

// Within '...' of any shell.
std::string single_quoted(const std::string& text) {
    std::string s = "'";
    for (const char c : text) s += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return s + "'";
}

std::string bash_command(const CommandInfo& c) {
    std::string words = "-h --help --help-all", values, positional;
    for (const OptionInfo& o : c.options) {
        const std::string list = value_words(o), models = o.value == "MODEL" ? "models=1; " : "";
        if (o.positional && !models.empty()) positional = models;
        if (o.positional && !list.empty()) positional = cat("words=\"", list, "\"; ");
        if (o.positional) continue;
        words += cat(" ", joined(o.names));
        if (o.value.empty()) continue;
        values += cat("                ", joined(o.names, "|"), ") ", models);
        values += list.empty() ? "" : cat("words=\"", list, "\"; ");
        values += takes_file(o) ? "files=1; " : "";
        values += "return_value=1 ;;\n";
    }
    return cat("        ", c.name, ")\n            options=\"", words, "\"\n",
               "            case \"$previous\" in\n", values, "            esac\n",
               positional.empty()
                   ? ""
                   : cat("            [[ -z $return_value && $current != -* ]] && { ", positional, "}\n"),
               "            ;;\n");
}

}  // namespace

std::string bash_completion(const std::vector<CommandInfo>& commands) {
    std::string names, cases;
    for (const CommandInfo& c : commands) {
        names += cat(" ", c.name);
        cases += bash_command(c);
    }
    return cat(R"sh(# bash completion of nibble. Use it with: source <(nibble completion bash)
_nibble() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
    local options="" words="" files="" models="" return_value=""
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 ]]; then
        COMPREPLY=($(compgen -W "--help --version)sh",
               names, R"sh(" -- "$current"))
        return
    fi
    if [[ $previous == "=" ]]; then  # --flag=value arrives as three words
        previous="${COMP_WORDS[COMP_CWORD-2]}"
    elif [[ $current == "=" ]]; then
        previous="${COMP_WORDS[COMP_CWORD-1]}" current=""
    fi
    case "${COMP_WORDS[1]}" in
)sh",
               cases, R"sh(        *) return ;;
    esac
    if [[ -z $return_value ]]; then
        if [[ $current == -* ]]; then
            words="$options"
        else
            files=1
        fi
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    local name
    if [[ -n $models ]]; then  # names of files are no words of the shell: compgen -W would expand them
        while IFS= read -r name; do
            [[ $name == "$current"* ]] && COMPREPLY+=("$name")
        done < <(nibble models --names 2>/dev/null)
    fi
    if [[ -n $files ]]; then
        while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen -f -- "$current")
        compopt -o filenames 2>/dev/null
    fi
}
complete -F _nibble nibble
)sh");
}

namespace {

// Inside the brackets of an _arguments specification.
std::string zsh_text(const std::string& text) {
    std::string s;
    for (const char c : text) {
        if (c == '[' || c == ']' || c == ':' || c == '\\') s += '\\';
        s += c;
    }
    return s;
}

std::string zsh_action(const OptionInfo& o) {
    if (!o.choices.empty()) return cat("(", joined(o.choices), ")");
    if (o.value == "MODEL") return "_nibble_models";
    if (o.value == "TEMPLATE") return "_nibble_templates";
    return takes_file(o) ? "_files" : "";
}

std::string zsh_option(const OptionInfo& o) {
    if (o.positional) return single_quoted(cat("*:", zsh_text(o.names[0]), ":", zsh_action(o)));
    std::string specs;
    for (const std::string& name : o.names) {
        std::string spec = cat("*", name);
        if (!o.value.empty()) spec += name.starts_with("--") ? "=" : "+";
        spec += cat("[", zsh_text(o.text), "]");
        if (!o.value.empty()) spec += cat(":", zsh_text(o.value), ":", zsh_action(o));
        specs += cat(specs.empty() ? "" : " ", single_quoted(spec));
    }
    return specs;
}

}  // namespace

std::string zsh_completion(const std::vector<CommandInfo>& commands) {
    std::string list, cases;
    for (const CommandInfo& c : commands) {
        list += cat("            ", single_quoted(cat(c.name, ":", c.summary)), "\n");
        cases += cat("        ", c.name, ") _arguments -s '(-)'{-h,--help}'[a screen of options]'",
                     " '(-)--help-all[every option]'");
        for (const OptionInfo& o : c.options) cases += cat(" \\\n            ", zsh_option(o));
        cases += " ;;\n";
    }
    return cat(R"sh(#compdef nibble
# zsh completion of nibble. Put it into a folder of $fpath as _nibble.
_nibble_models() {
    local -a names
    names=(${(f)"$(nibble models --names 2>/dev/null)"})
    compadd -a names
    _files
}
_nibble_templates() {
    compadd )sh",
               joined(template_names()), R"sh(
    _files
}
_nibble() {
    local -a commands
    if (( CURRENT == 2 )); then
        commands=(
)sh",
               list, R"sh(        )
        _describe command commands
        return
    fi
    shift words
    (( CURRENT-- ))
    case $words[1] in
)sh",
               cases, R"sh(    esac
}
if [[ $funcstack[1] == _nibble ]]; then
    _nibble "$@"
else
    compdef _nibble nibble
fi
)sh");
}

std::string fish_completion(const std::vector<CommandInfo>& commands) {
    std::string out =
        "# fish completion of nibble. Put it into ~/.config/fish/completions/nibble.fish.\n"
        "complete -c nibble -f\n"
        "complete -c nibble -n __fish_use_subcommand -l version -d 'the version'\n";
    const auto fish_quoted = [](const std::string& text) {
        std::string s = "'";
        for (const char c : text) s += c == '\'' || c == '\\' ? cat("\\", c) : std::string(1, c);
        return s + "'";
    };
    for (const CommandInfo& c : commands) {
        out += cat("complete -c nibble -n __fish_use_subcommand -a ", c.name, " -d ", fish_quoted(c.summary),
                   "\n");
        const std::string line = cat("complete -c nibble -n '__fish_seen_subcommand_from ", c.name, "'");
        out +=
            cat(line, " -s h -l help -d 'a screen of options'\n", line, " -l help-all -d 'every option'\n");
        for (const OptionInfo& o : c.options) {
            out += line;
            for (const std::string& n : o.names)
                if (!o.positional)
                    out += n.starts_with("--") ? cat(" -l ", n.substr(2)) : cat(" -s ", n.substr(1));
            const bool files = takes_file(o);
            if (!o.positional) out += cat(" -d ", fish_quoted(o.text));
            if (o.value == "MODEL")
                out += " -a '(nibble models --names 2>/dev/null)'";
            else if (const std::string words = value_words(o); !words.empty())
                out += cat(" -a ", fish_quoted(words));
            if (!o.value.empty()) out += cat(o.positional ? "" : " -r", files ? " -F" : " -f");
            out += "\n";
        }
    }
    return out;
}

}  // namespace nibble
