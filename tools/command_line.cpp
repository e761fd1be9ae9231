// CLI11 asks for what is missing before it names what is unknown, and lists unknown words backwards; a
// mistyped option is found here first.
#include "tools/command_line.h"

#include <algorithm>
#include <numeric>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "tools/describe.h"

namespace nibble {
namespace {

// Letters to insert, delete, replace or swap with the neighbour: the optimal string alignment distance.
size_t distance(std::string_view a, std::string_view b) {
    std::vector<size_t> two_above, above(b.size() + 1), row(b.size() + 1);
    std::iota(above.begin(), above.end(), size_t{0});
    for (size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], two_above[j - 2] + 1);
        }
        two_above = std::exchange(above, row);
    }
    return above[b.size()];
}

std::string help_hint(const std::string& command) {
    return cat("see `nibble ", command, command.empty() ? "" : " ", "--help`");
}

std::vector<std::string> option_names(const CLI::App& command) {
    std::vector<std::string> names = {"--help"};
    for (const OptionInfo& o : describe(command).options)
        if (!o.positional)
            for (const std::string& n : o.names)
                if (n.starts_with("--")) names.push_back(n);
    return names;
}

// What CLI11 could not place: the first option if there is one, else the first word.
std::string unplaced(const CLI::App& command) {
    std::vector<std::string> words = command.remaining();
    std::erase(words, "--");
    const auto option =
        std::ranges::find_if(words, [](const std::string& w) { return w.size() > 1 && w.starts_with('-'); });
    return option != words.end() ? *option : words.empty() ? "" : words.front();
}

}  // namespace

void open_standard_files() {
    // A file opened for reading answers a write as a closed one does.
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (::fcntl(fd, F_GETFD) < 0) [[maybe_unused]]
            const int opened = ::open("/dev/null", O_RDONLY);  // gets the lowest number, which is fd
}

std::vector<std::string> with_empty_values(std::span<const std::string> args, const CLI::App& command) {
    std::vector<std::string> list;
    for (size_t i = 0; i < args.size(); ++i) {
        if (args[i] == "--") {
            list.insert(list.end(), args.begin() + static_cast<ptrdiff_t>(i), args.end());
            break;
        }
        list.push_back(args[i]);
        const CLI::Option* asks = args[i].starts_with('-') ? command.get_option_no_throw(args[i]) : nullptr;
        if (asks && asks->get_items_expected_min() > 0 && i + 1 < args.size()) {
            list.push_back(args[++i]);  // its value, whatever that looks like
            continue;
        }
        if (!args[i].starts_with("--") || !args[i].ends_with('=')) continue;
        const std::string name = args[i].substr(2, args[i].size() - 3);
        const CLI::Option* option = command.get_option_no_throw("--" + name);
        if (!option || option->get_items_expected_max() == 0) continue;
        list.back().pop_back();
        list.emplace_back();
    }
    return list;
}

std::string nearest(std::string_view word, std::span<const std::string> known) {
    std::string best;
    constexpr size_t stem = 4;  // shorter beginnings say nothing
    size_t least = std::max<size_t>(1, (word.size() + 1) / 3) + 1;
    for (const std::string& k : known) {
        size_t d = distance(word, k);
        if (word.size() >= stem && k.starts_with(word)) d = std::min<size_t>(d, 1);
        if (k.size() >= stem && word.starts_with(k)) d = std::min<size_t>(d, 2);
        if (d < least) least = d, best = k;
    }
    return best;
}

Result<void> refuse_empty_values(const CLI::App& command) {
    constexpr std::string_view texts[] = {"TEXT", "X"};  // may be empty
    for (const CLI::Option* o : command.get_options()) {
        if (o->count() == 0 || o->get_items_expected_max() == 0) continue;
        const std::string type = o->get_type_name();
        if (std::ranges::find(texts, type) != std::end(texts)) continue;
        const std::vector<std::string> values = o->reduced_results();
        if (std::ranges::find(values, "") == values.end()) continue;
        const std::string name = o->get_lnames().empty() ? o->get_name(true) : "--" + o->get_lnames()[0];
        return Error{ErrorCode::invalid_argument, name, "is empty",
                     "an unset variable? leave the option out for its default"};
    }
    return {};
}

Error unknown_command(const CLI::App& root, const std::string& name) {
    std::vector<std::string> names;
    for (const CLI::App* sub : root.get_subcommands({})) names.push_back(sub->get_name());
    const std::string meant = nearest(name, names);
    return {ErrorCode::invalid_argument, name, "is not a command",
            meant.empty() ? help_hint("") : cat("did you mean ", meant, "? ", help_hint(""))};
}

std::string usage_message(const CLI::App& root, const CLI::Error& e, const std::string& command) {
    const auto message = [&](const std::string& what) {
        return cat("nibble: ", what, " (", help_hint(command), ")\n");
    };
    const auto named = root.get_subcommands([&](const CLI::App* a) { return a->get_name() == command; });
    const CLI::App& parsed = named.empty() ? root : *named[0];
    std::string word = unplaced(parsed);
    word.erase(std::min(word.find('='), word.size()));
    const bool is_option = word.size() > 1 && word.starts_with('-');
    if (is_option || (!word.empty() && dynamic_cast<const CLI::ExtrasError*>(&e))) {
        if (!is_option) return message(cat(word, ": is not expected here"));
        const std::string meant = nearest(word, option_names(parsed));
        return message(
            cat(word, ": is not an option here", meant.empty() ? "" : cat(", did you mean ", meant, "?")));
    }
    if (command.empty()) return message("a command is missing");
    std::string what = e.what();
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&e))  // the command line has ended behind its name
        return message(cat(what.substr(0, what.find(": ")), ": needs a value"));
    constexpr std::string_view unreadable = "Could not convert: ", is = " = ";
    if (const size_t at = what.find(is); what.starts_with(unreadable) && at != what.npos)
        what = cat(what.substr(unreadable.size(), at - unreadable.size()), ": '", what.substr(at + is.size()),
                   "' is not a number");
    return message(what);
}

}  // namespace nibble
