// The command table and its functions; each acts on the Repl that it is given.
// Parameters come from the table of samplers, so /set and /params know every one.
#include "tools/repl/commands.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "ggml/base/folder.h"
#include "ggml/base/mapped_file.h"
#include "ggml/file/quote.h"
#include "src/sample/chain.h"
#include "src/text/utf8.h"
#include "tools/template_option.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr size_t max_attachment = size_t{16} << 20;
constexpr std::string_view no_text = "\"\"";  // how an empty text is typed

Error usage(std::string_view command, std::string what, std::string fix = {}) {
    return {ErrorCode::invalid_argument, std::string(command), std::move(what), std::move(fix)};
}

std::string messages(size_t n) { return cat(n, n == 1 ? " message" : " messages"); }

Result<void> help(Repl& r, const std::string&) {
    constexpr size_t name_columns = 22;
    for (const ReplCommand& c : repl_commands()) {
        std::string name = cat(c.name, c.arguments.empty() ? "" : " ", c.arguments);
        name.resize(std::max(name.size() + 1, name_columns), ' ');
        r.view.line(cat("  ", name, c.help, c.aliases.empty() ? "" : cat(" (also ", c.aliases, ")")));
    }
    r.view.line("Several lines: end one with \\, put \"\"\" around them, press Ctrl-J or paste.");
    r.view.line("Ctrl-G opens $EDITOR, Tab completes, Ctrl-C stops an answer, Ctrl-D leaves.");
    return {};
}

// What is attached was meant for the conversation that there was.
void drop_attachment(Repl& r) {
    if (r.attachment.empty()) return;
    r.attachment.clear();
    r.view.line("What was attached is dropped.");
}

Result<void> clear(Repl& r, const std::string&) {
    r.chat.begin({r.chat.conversation.system, {}});
    r.view.line("The conversation is empty.");
    drop_attachment(r);
    return {};
}

Result<void> set_system(Repl& r, const std::string& text) {
    if (text.empty()) {
        r.view.line(r.chat.conversation.system.empty() ? "No system prompt." : r.chat.conversation.system);
        return {};
    }
    const bool remove = text == "-" || text == no_text;
    r.chat.conversation.system = remove ? "" : text;
    r.view.line(remove ? "The system prompt is removed." : "The system prompt is set.");
    return {};
}

Result<void> regenerate(Repl& r, const std::string&) {
    if (!r.chat.conversation.last("user")) return usage("/regenerate", "there is no message to answer");
    r.answer_now = true;
    return {};
}

Result<void> undo(Repl& r, const std::string&) {
    if (!r.chat.conversation.undo()) return usage("/undo", "the conversation is empty");
    const size_t left = r.chat.conversation.messages.size();
    r.view.line(cat("The last turn is gone; ", messages(left), left == 1 ? " remains." : " remain."));
    return {};
}

Result<void> edit(Repl& r, const std::string& text) {
    const Message* last = r.chat.conversation.last("user");
    if (!last) return usage("/edit", "there is no message to edit");
    // What was attached to the message stays with other words of it.
    std::string attached;
    for (const std::string& a : r.attached)
        if (a.size() > attached.size() && last->content.starts_with(a)) attached = a;
    std::string changed = text.empty() ? text : attached + text;
    if (changed.empty()) {
        if (!r.terminal.is_terminal()) return usage("/edit", "needs a terminal or the new text");
        const auto edited = edit_text(r.terminal, last->content);
        if (!edited) return usage("/edit", "the editor failed; the message is unchanged", "set $EDITOR");
        changed = *edited;
    }
    if (changed.empty()) return usage("/edit", "the new text is empty; the message is unchanged");
    r.otherwise = r.chat.conversation;
    r.chat.conversation.undo();
    r.chat.conversation.messages.push_back({"user", std::move(changed)});
    r.answer_now = true;
    return {};
}

// As a shell would read it.
std::string expanded(const std::string& path) {
    const char* home = std::getenv("HOME");
    return home && path.starts_with("~/") ? home + path.substr(1) : path;
}

// A conversation may be saved over; another file is not what was meant.
Result<void> save(Repl& r, const std::string& given) {
    if (given.empty()) return usage("/save", "needs a file");
    const std::string path = expanded(given);
    std::error_code error;
    if (fs::exists(path, error) && fs::file_size(path, error) != 0 && !load_conversation(path))
        return usage("/save", cat(path, " is there and holds no conversation"), "give another name");
    NIBBLE_TRY(save_conversation(r.chat.conversation, path));
    r.view.line(cat("Saved ", messages(r.chat.conversation.messages.size()), " to ", path));
    return {};
}

Result<void> load(Repl& r, const std::string& path) {
    if (path.empty()) return usage("/load", "needs a file");
    r.chat.begin(NIBBLE_TRY(load_conversation(expanded(path))));
    r.view.line(cat("Loaded ", messages(r.chat.conversation.messages.size()), "."));
    drop_attachment(r);
    return {};
}

Result<void> set_parameter(Repl& r, const std::string& argument) {
    const size_t space = argument.find(' ');
    const std::string key = argument.substr(0, space);
    if (key.empty()) return usage("/set", "needs a key and a value", "see /params");
    const Param* param = find_param(key);
    if (space == std::string::npos && param) {
        r.view.line(cat(param->key, " = ", get(r.chat.options.sampling, *param), ": ", param->help));
        return {};
    }
    if (!param) return usage("/set", cat("there is no parameter '", key, "'"), "see /params");
    SamplerParams changed = r.chat.options.sampling;
    const std::string_view value = std::string_view(argument).substr(space + 1);
    NIBBLE_TRY(set(changed, key, value == no_text ? "" : value));
    changed.dry_breaker_tokens.clear();  // found anew from the strings
    if (!changed.seed) changed.seed = std::random_device{}();
    NIBBLE_TRY(Chain::create(changed, static_cast<size_t>(r.chat.engine().spec().n_vocab)));
    if (param->key == "seed") r.chat.restart_random_numbers();
    r.chat.options.sampling = std::move(changed);
    r.view.line(cat(param->key, " = ", get(r.chat.options.sampling, *param)));
    for (const std::string& warning : conflicts(r.chat.options.sampling)) r.view.notice(warning);
    return {};
}

Result<void> params(Repl& r, const std::string&) {
    for (const Param& p : param_table()) {
        const std::string value = get(r.chat.options.sampling, p);
        const bool changed = value != default_text(p);
        r.view.line(cat(changed ? "* " : "  ", p.key,
                        std::string(24 - std::min<size_t>(23, p.key.size()), ' '), value));
    }
    return {};
}

Result<void> tokens(Repl& r, const std::string& text) {
    const Tokenizer& t = r.chat.engine().tokenizer();
    std::vector<Token> ids;
    if (text.empty() && r.chat.conversation.empty())
        r.view.line("The conversation is empty.");
    else
        ids = text.empty() ? NIBBLE_TRY(r.chat.prompt_tokens()) : t.encode(text, {false, false});
    if (text.empty()) {
        r.view.line(cat(ids.size(), " of ", r.chat.engine().ctx(), " tokens"));
        return {};
    }
    std::string line;
    for (const Token id : ids) line += cat(line.empty() ? "" : " ", id, "|", t.piece(id));
    r.view.line(cat(line, "\n", ids.size(), " tokens"));
    return {};
}

Result<void> stats(Repl& r, const std::string&) {
    const Turn& t = r.last;
    if (t.finish == Finish::none) return usage("/stats", "there is no answer yet");
    const auto rate = [](int32_t n, double s) { return n > 0 && s > 0 ? n / s : 0.0; };
    const std::string guessed = t.guessed ? cat(", ", t.guessed, " of them guessed") : "";
    char text[400];
    std::snprintf(
        text, sizeof text,
        "prompt %d tokens, %d of them computed (%.1f tokens/s), the rest reused\nanswer %d tokens%s, "
        "%.1f tokens/s, ended by %s\ncontext %d of %d tokens, cache and activations %.1f MiB",
        t.prompt_tokens, t.prefill_tokens, rate(t.prefill_tokens, t.prefill_seconds), t.generated,
        guessed.c_str(), rate(t.generated - 1, t.decode_seconds), std::string(name(t.finish)).c_str(),
        t.context_used, r.chat.engine().ctx(),
        static_cast<double>(r.chat.engine().allocated_bytes()) / (1 << 20));
    r.view.line(text);
    return {};
}

Result<void> probs(Repl& r, const std::string&) {
    if (!r.chat.conversation.last("user")) return usage("/probs", "there is no message to answer");
    r.view.line("The most likely beginnings of the answer, before sampling:");
    for (const TokenLogprob& p : NIBBLE_TRY(r.chat.next_tokens(10))) {
        char text[64];
        std::snprintf(text, sizeof text, "  %6.2f %%  %6d  ", 100 * std::exp(p.logprob), p.token);
        const nlohmann::json piece = r.chat.engine().tokenizer().piece(p.token);
        r.view.line(text + piece.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
    return {};
}

Result<void> attach(Repl& r, const std::string& given) {
    if (given.empty()) return usage("/attach", "needs a file");
    if (given == "-") {
        if (r.attachment.empty()) return usage("/attach", "nothing is attached");
        drop_attachment(r);
        return {};
    }
    const std::string path = expanded(given);
    const std::string text = NIBBLE_TRY(read_text_file(path, max_attachment));
    r.attachment += cat(fs::path(path).filename().string(), ":\n", text, "\n\n");
    r.view.line(cat(path, ", ", text.size(), " bytes, goes before the next message."));
    return {};
}

Result<void> show_template(Repl& r, const std::string& name) {
    if (name.empty()) {
        r.view.line(r.chat.format().chat_template().source());
        return {};
    }
    const ChatFormat& before = r.chat.format();
    ChatFormat format(r.chat.engine().tokenizer(), NIBBLE_TRY(named_template(expanded(name))), false,
                      before.variables());
    if (before.thinking().mode != Thinking::Mode::as_template) format.set_thinking(before.thinking());
    r.chat.set_format(std::move(format));
    r.view.line(cat("The template is ", name, "."));
    return {};
}

Result<void> think(Repl& r, const std::string& how) {
    if (how.empty())
        return usage("/think", "needs on, off or how much", "low, medium or high, where it knows them");
    ChatFormat format = r.chat.format();
    const bool changes = format.set_thinking(NIBBLE_TRY(find_thinking(how)));
    r.chat.set_format(std::move(format));
    r.view.line(cat("Thinking is ", how, "."));
    if (!changes) r.view.notice("the chat template has no such switch");
    return {};
}

Result<void> leave(Repl& r, const std::string&) {
    r.leave = true;
    return {};
}

constexpr ReplCommand table[] = {
    {"/help", "/?", "", "these lines", help},
    {"/clear", "/new", "", "begin anew, keeping the system prompt", clear},
    {"/system", "", "[TEXT]", "show or set the system prompt; - or \"\" removes it", set_system},
    {"/regenerate", "/regen /retry", "", "answer the last message again", regenerate},
    {"/undo", "", "", "take the last turn back", undo},
    {"/edit", "", "[TEXT]", "change the last message and answer it", edit},
    {"/save", "", "FILE", "write the conversation as JSON", save},
    {"/load", "", "FILE", "read a conversation", load},
    {"/set", "", "KEY VALUE", "change a sampling parameter; \"\" is no value", set_parameter},
    {"/params", "", "", "the sampling parameters; * is not the default", params},
    {"/tokens", "", "[TEXT]", "count the conversation's tokens, or show a text's", tokens},
    {"/stats", "", "", "figures of the last answer", stats},
    {"/probs", "", "", "the most likely first tokens of the answer", probs},
    {"/attach", "", "FILE", "put a file before the next message; - takes it back", attach},
    {"/template", "", "[NAME|FILE]", "show or replace the chat template", show_template},
    {"/think", "", "on|off|EFFORT", "whether the model thinks first, or how much", think},
    {"/exit", "/bye /quit", "", "leave, as Ctrl-D does", leave},
};

bool is_named(const ReplCommand& c, std::string_view name) {
    if (c.name == name) return true;
    const size_t at = c.aliases.find(name);
    const size_t end = at == std::string_view::npos ? at : at + name.size();
    return at != std::string_view::npos && (at == 0 || c.aliases[at - 1] == ' ') &&
           (end == c.aliases.size() || c.aliases[end] == ' ');
}

bool is_utf8(std::string_view text) {
    while (const int n = valid_utf8_at(text)) text.remove_prefix(static_cast<size_t>(n));
    return text.empty();
}

void complete_path(const std::string& word, ReplInput::Completions& out) {
    const fs::path typed(word);
    const fs::path folder =
        typed.has_parent_path() ? expanded(typed.parent_path().string() + "/") : std::string(".");
    const std::string start = typed.filename().string();
    std::error_code ec;
    for (const fs::path& entry : folder_entries(folder, ec)) {
        const std::string name = entry.filename().string();
        // What cannot be typed, or would steer the terminal, is not offered.
        if (printable(name, name.size()) != name || !is_utf8(name) || name.ends_with(' ')) continue;
        if (!name.starts_with(start) || (start.empty() && name.starts_with('.'))) continue;
        const std::string whole = typed.has_parent_path() ? (typed.parent_path() / name).string() : name;
        out.words.push_back(whole + (fs::is_directory(entry, ec) ? "/" : ""));
    }
}

}  // namespace

std::span<const ReplCommand> repl_commands() { return table; }

Result<void> run_command_line(Repl& repl, const std::string& line) {
    constexpr const char* text_fix = "see /help; after a space it is text";
    const size_t space = line.find_first_of(" \n");
    const std::string name = line.substr(0, space);
    std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
    argument.erase(0, std::min(argument.find_first_not_of(' '), argument.size()));
    while (argument.ends_with(' ')) argument.pop_back();
    for (const ReplCommand& c : table) {
        if (!is_named(c, name)) continue;
        if (c.arguments.empty() && argument.find_first_not_of(" \n") != std::string::npos)
            return usage(name, "takes no argument", text_fix);
        return c.run(repl, argument);
    }
    return usage(name, "is not a command", text_fix);
}

ReplInput::Completions complete_command(const std::string& before) {
    ReplInput::Completions out;
    if (!before.starts_with('/')) return out;
    const size_t space = before.find(' ');
    out.begin = std::min(before.find_first_not_of(' ', space), before.size());  // a path may hold spaces
    if (space == std::string::npos) out.begin = 0;
    const std::string word = before.substr(out.begin), command = before.substr(0, space);
    const auto offer = [&](std::string_view name) {
        if (name.starts_with(word)) out.words.emplace_back(name);
    };
    if (out.begin == 0) {
        for (const ReplCommand& c : table) offer(c.name);
    } else if (command == "/set") {
        for (const Param& p : param_table()) offer(p.key);
    } else if (command == "/template") {
        for (const std::string& n : template_names()) offer(n);
        complete_path(word, out);
    } else if (command == "/think") {
        for (const std::string_view how : thinking_words()) offer(how);
    } else if (command == "/save" || command == "/load" || command == "/attach") {
        complete_path(word, out);
    }
    std::ranges::sort(out.words);
    return out;
}

}  // namespace nibble
