// nibble completion: the script that teaches a shell nibble's commands, options and names; or the manual
// page. Made from the commands themselves, so it is never behind them.
#include <cstdio>
#include <memory>

#include "tools/completion.h"

namespace nibble {
namespace {

Result<int> print_completion(const std::vector<CommandInfo>& commands, const std::string& what) {
    const std::string text = what == "bash"   ? bash_completion(commands)
                             : what == "zsh"  ? zsh_completion(commands)
                             : what == "fish" ? fish_completion(commands)
                             : what == "man"  ? manual_page(commands, NIBBLE_VERSION)
                                              : "";
    if (text.empty())
        return Error{ErrorCode::invalid_argument, "completion", "'" + what + "' is not a shell",
                     "use bash, zsh, fish or man"};
    std::fwrite(text.data(), 1, text.size(), stdout);
    return exit_ok;
}

std::function<Result<int>()> setup(Flags& flags) {
    auto shell = std::make_shared<std::string>();
    flags.value("shell", *shell, "bash, zsh or fish; man: the manual page")
        .required()
        .type_name("bash|zsh|fish|man");
    flags.examples(
        "  nibble completion bash > ~/.local/share/bash-completion/completions/nibble\n"
        "  nibble completion man | man -l -");
    return [shell, flags] { return print_completion(describe_all(flags), *shell); };
}

}  // namespace

extern const Command completion_command;
const Command completion_command{"completion", "Print the completion script of a shell, or the manual",
                                 setup};

}  // namespace nibble
