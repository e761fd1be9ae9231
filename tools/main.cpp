// nibble: the command line. Parses the subcommand and runs it; everything else is in cmd_*.cpp.
// The only place that turns errors into exit codes.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/file/quote.h"
#include "tools/command_line.h"
#include "tools/help.h"
#include "tools/settings.h"

namespace nibble {

void print_note(const std::string& text) {
    std::fprintf(stderr, "nibble: note: %s\n", printable(text, max_message).c_str());
}

void print_warnings(const std::vector<std::string>& texts) {
    for (const std::string& text : texts)
        std::fprintf(stderr, "nibble: warning: %s\n", printable(text, max_message).c_str());
}

int report(const Error& error) {
    std::fprintf(stderr, "nibble: %s\n", printable(error.message(), max_message).c_str());
    return error.code == ErrorCode::invalid_argument ? exit_usage : exit_failure;
}

Result<void> flush_output() {
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return {};
    return Error{ErrorCode::io, "stdout", "cannot be written", ""};
}

void end_by_signal(int signal, const Result<int>& code) {
    if (!signal) return;
    if (!code) report(code.error());
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

namespace {

// Sizes are checked before memory is asked for; this is for what was overlooked.
Result<int> outcome(const std::function<Result<int>()>& command) {
    try {
        return command();
    } catch (const std::bad_alloc&) {
        return Error{ErrorCode::out_of_memory, "memory", "there is not enough", ""};
    } catch (const std::exception& e) {
        return Error{ErrorCode::internal, "nibble", cat("failed: ", e.what()), "please report this"};
    }
}

// --help works with any settings.
Result<std::vector<SettingArgument>> settings_for(const CLI::App& root, const CLI::App& command,
                                                  std::span<const std::string> args) {
    args = args.subspan(1);
    if (asks_for_help(command, args)) return std::vector<SettingArgument>();
    return setting_arguments(NIBBLE_TRY(read_settings()), root, command, args);
}

// Whether the word stands in the text, and not as a part of another one.
bool mentions(std::string_view text, std::string_view word) {
    const auto in_word = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    for (size_t at = text.find(word); !word.empty() && at != text.npos; at = text.find(word, at + 1)) {
        const size_t end = at + word.size();
        if ((at == 0 || !in_word(text[at - 1])) &&
            (end == text.size() || (!in_word(text[end]) && text[end] != '-')))
            return true;
    }
    return false;
}

// A setting that the user did not type should not be a riddle when it is refused, or the file that it names.
void note_origin(std::span<const SettingArgument> settings, const std::string& message, bool usage) {
    std::string dashed = message;
    std::ranges::replace(dashed, '_', '-');
    for (const SettingArgument& s : settings)
        if ((usage && mentions(dashed, s.name)) || mentions(message, s.path))
            std::fprintf(stderr, "nibble: note: %s comes from %s\n", printable(s.text).c_str(),
                         printable(s.origin, max_message).c_str());
}

// The exit code of a command that has done its work, if all of its output arrived.
int flushed(int code) {
    const Result<void> arrived = flush_output();
    return arrived ? code : report(arrived.error());
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
    using namespace nibble;
    open_standard_files();
    std::signal(SIGPIPE, SIG_DFL);  // `nibble run | head` ends quietly
    std::signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is an error of its writing
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
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // the last one counts
    std::function<Result<int>()> selected;
    for (const Command* c : all_commands()) {
        CLI::App* sub = app.add_subcommand(std::string(c->name), std::string(c->summary));
        Flags flags(*sub);
        sub->callback([&selected, body = c->setup(flags)] { selected = body; });
    }
    std::vector<std::string> args(argv + 1, argv + argc);
    app.failure_message([&](const CLI::App*, const CLI::Error& e) {
        return usage_message(app, e, args.empty() || args[0].starts_with('-') ? "" : args[0]);
    });
    std::vector<SettingArgument> settings;
    if (!args.empty() && !args[0].starts_with('-')) {
        const auto subcommands = app.get_subcommands([&](CLI::App* a) { return a->get_name() == args[0]; });
        if (subcommands.empty()) return report(unknown_command(app, args[0]));
        auto found = settings_for(app, *subcommands[0], args);
        if (!found) return report(found.error());
        settings = std::move(*found);
        for (size_t i = settings.size(); i-- > 0;) args.insert(args.begin() + 1, settings[i].text);
        args = with_empty_values(args, *subcommands[0]);
    }
    std::vector<std::string> line(args.rbegin(), args.rend());  // CLI11 takes them from the back
    try {
        app.parse(line);
    } catch (const CLI::ParseError& e) {
        const int code = app.exit(e) == 0 ? exit_ok : exit_usage;
        if (code == exit_ok) return flushed(code);
        note_origin(settings, e.what(), true);
        return code;
    } catch (const std::out_of_range&) {  // CLI11 reads a number that is given to a switch, however long
        return report(
            Error{ErrorCode::invalid_argument, args[0], "a switch is given a number", "say true or false"});
    }
    const Result<void> filled = refuse_empty_values(*app.get_subcommands()[0]);
    const Result<int> code = filled ? outcome(selected) : Result<int>(filled.error());
    if (code) return flushed(*code);
    note_origin(settings, code.error().message(), code.error().code == ErrorCode::invalid_argument);
    return report(code.error());
}
