// nibble completion: the script that teaches a shell nibble's commands, options and names; or the manual
// page. Made from the commands themselves, so it is never behind them.
#include <cstdio>

#include "tools/completion.h"

namespace nibble {
namespace {

Result<int> print_completion(const CLI::App& root, const std::string& what) {
    const std::vector<CommandInfo> commands = describe_all(root);
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

std::function<Result<int>()> setup(CLI::App& app) {
    auto shell = std::make_shared<std::string>();
    app.add_option("shell", *shell, "bash, zsh or fish; man: the manual page")
        ->required()
        ->type_name("bash|zsh|fish|man");
    app.footer(
        "Examples:\n  nibble completion bash > ~/.local/share/bash-completion/completions/nibble\n"
        "  nibble completion man | man -l -");
    return [shell, &app] { return print_completion(*app.get_parent(), *shell); };
}

}  // namespace

extern const Command completion_command;
const Command completion_command{"completion", "Print the completion script of a shell, or the manual",
                                 setup};

}  // namespace nibble
