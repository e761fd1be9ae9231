// nibble: the command line. Parses the subcommand and runs it; everything else is in cmd_*.cpp.
// The only place that turns errors into exit codes.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>

#include <unistd.h>

#include "tools/help.h"

namespace nibble {

int report(const Error& error) {
    std::fprintf(stderr, "nibble: %s\n", error.message().c_str());
    return error.code == ErrorCode::invalid_argument ? exit_usage : exit_failure;
}

}  // namespace nibble

int main(int argc, char** argv) {
    using namespace nibble;
    std::signal(SIGPIPE, SIG_DFL);  // `nibble run | head` ends quietly
    CLI::App app{"nibble runs large language models on this machine.", "nibble"};
    app.formatter(std::make_shared<HelpFormatter>());
    app.set_help_all_flag("--help-all", "every option");
    app.set_version_flag("--version", NIBBLE_VERSION);
    app.require_subcommand(1);
    // Plain `nibble` on a terminal is the chat.
    const char* const chat[] = {argv[0], "chat"};
    if (argc == 1 && ::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO)) {
        argc = 2;
        argv = const_cast<char**>(chat);
    }
    app.failure_message([](const CLI::App* a, const CLI::Error& e) {
        return std::string("nibble: ") + e.what() + " (see `" + a->get_name() + " --help`)\n";
    });
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // the last one counts
    std::function<Result<int>()> selected;
    for (const Command* c : all_commands()) {
        CLI::App* sub = app.add_subcommand(std::string(c->name), std::string(c->summary));
        sub->callback([&selected, body = c->setup(*sub)] { selected = body; });
    }
    const auto is_named = [&](const Command* c) { return c->name == argv[1]; };
    if (argc > 1 && argv[1][0] != '-' && std::ranges::none_of(all_commands(), is_named))
        return report({ErrorCode::invalid_argument, argv[1], "is not a command", "see `nibble --help`"});
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? exit_ok : exit_usage;
    }
    const Result<int> code = selected();
    return code ? *code : report(code.error());
}
