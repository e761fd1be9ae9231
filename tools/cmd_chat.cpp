// nibble chat: a conversation in a terminal; also from a pipe, one message a line.
// Ctrl-C stops an answer and keeps what came; at the prompt two in a row leave, as does Ctrl-D. SIGTERM,
// SIGHUP (no terminal) and SIGPIPE (no reader) end it in order too: the session and the history are kept.
#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ggml/base/mapped_file.h"
#include "src/chat/session.h"
#include "tools/repl/commands.h"
#include "tools/repl/file_lock.h"
#include "tools/template_option.h"

namespace nibble {
namespace {

// Which version of a file there is; nothing without a file. Sessions are replaced whole, so that another
// version has another inode or another time.
struct FileVersion {
    ino_t inode = 0;
    int64_t seconds = 0, nanoseconds = 0, size = 0;
    bool operator==(const FileVersion&) const = default;
};

// What the session's file held when the chat began.
struct Begun {
    std::optional<FileVersion> version;
    Conversation conversation;
};

std::optional<FileVersion> version_of(const std::string& path) {
    struct stat s {};
    if (::stat(path.c_str(), &s) != 0) return {};
    return FileVersion{s.st_ino, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_size};
}

struct ChatCommand {
    ModelOption model;
    TemplateOption chat_template;
    RunOptions options;
    SamplingOptions sampling;
    std::optional<std::string> system;  // empty: none, whatever a session has
    std::string overflow = "drop", load, session;
    int64_t n = -1;
    bool no_color = false, hide_thinking = false, no_history = false;

    Result<int> operator()() const;
    Result<Chat> open(Engine& engine, const std::filesystem::path& path, const SamplerParams& params,
                      Begun& begun) const;
    Result<void> keep(Chat& chat, const Begun& begun) const;
    bool wants_colour() const;
};

bool ChatCommand::wants_colour() const {
    const char* const no = std::getenv("NO_COLOR");
    return ::isatty(STDOUT_FILENO) && knows_escapes() && !no_color && !(no && *no);
}

Result<Chat> ChatCommand::open(Engine& engine, const std::filesystem::path& path, const SamplerParams& params,
                               Begun& begun) const {
    ModelFormat f = NIBBLE_TRY(chat_template.format(engine.tokenizer(), path));
    print_warnings(f.warnings);
    ChatOptions o;
    o.sampling = params;
    o.max_tokens = n;
    o.overflow = NIBBLE_TRY(find_overflow(overflow));
    Chat chat(engine, std::move(f.format), std::move(o));
    if (!load.empty()) chat.begin(NIBBLE_TRY(load_conversation(load)));
    begun.version = version_of(session);
    if (begun.version && begun.version->size > 0) {  // an empty file is a new session
        const int32_t stored = NIBBLE_TRY(load_session(chat, session));
        begun.conversation = chat.conversation;
        std::fprintf(stderr, "nibble: %s: %zu messages, %d tokens need no prefill\n", session.c_str(),
                     chat.conversation.messages.size(), stored);
    }
    if (system) chat.conversation.system = *system;
    return chat;
}

// A file that another chat has written since this one began is not replaced: there would be no way back to
// that conversation. Chats that end at the same time, as when a machine is shut down, write one by one.
Result<void> ChatCommand::keep(Chat& chat, const Begun& begun) const {
    std::error_code ec;
    const auto folder =
        std::filesystem::weakly_canonical(std::filesystem::absolute(session, ec), ec).parent_path();
    const FileLock lock(folder, O_RDONLY | O_DIRECTORY);
    const std::optional<FileVersion> there = version_of(session);
    if (chat.conversation == begun.conversation && (there || chat.conversation.empty())) return {};
    std::string name = session;
    if (there && there != begun.version) {
        for (int i = 2; version_of(name); ++i) name = cat(session, ".", i);
        std::fprintf(stderr, "nibble: another chat has written %s; this one is kept in %s\n", session.c_str(),
                     name.c_str());
    }
    return save_session(chat, name);
}

// Answers the last message, or `message` with what is attached before it; streaming. Errors are shown: the
// chat goes on.
void answer(Repl& r, std::optional<std::string> message) {
    take_interrupt();
    r.reading = true;
    const ChatHooks hooks{[&](std::string_view text) { r.reading = false, r.view.text(text); },
                          [&](const std::string& line) { r.view.notice(line); },
                          [] { return interrupt_pending() || ending_signal(); },
                          [&](int32_t read, int32_t left) { r.view.reading(read, left); }};
    auto turn = message ? r.chat.say(r.attachment + *message, hooks) : r.chat.answer(hooks);
    r.reading = false;
    take_interrupt();
    r.view.end_answer();
    const std::optional<Conversation> otherwise = std::exchange(r.otherwise, {});
    if (!turn) {
        if (otherwise) r.chat.conversation = *otherwise;
        r.fail(turn.error());
        if (message && !r.attachment.empty())
            r.view.notice("what is attached goes before the next message; /attach - drops it");
        return;
    }
    if (message && !r.attachment.empty()) {
        std::erase(r.attached, r.attachment);
        r.attached.push_back(std::exchange(r.attachment, {}));
    }
    r.last = *turn;
    r.view.status(*turn, r.chat.engine().ctx());
}

void converse(Repl& r) {
    bool interrupted_before = false;
    while (!r.leave && !ending_signal()) {
        Input in = r.input.read();
        if (in.failure) r.fail(*in.failure);
        if (in.kind == Input::Kind::end || ending_signal()) return;
        if (in.kind == Input::Kind::interrupted) {
            if (std::exchange(interrupted_before, true) && !in.typed) return;
            r.view.line("(Ctrl-C again, Ctrl-D or /exit leaves)");
            continue;
        }
        interrupted_before = false;
        if (in.text.find_first_not_of(" \n") == std::string::npos) continue;
        if (!in.text.starts_with('/')) {
            answer(r, std::move(in.text));
            continue;
        }
        const Result<void> done = run_command_line(r, in.text);
        if (!done) r.fail(done.error());
        if (std::exchange(r.answer_now, false)) answer(r, {});
    }
}

Result<int> ChatCommand::operator()() const {
    const SamplerParams params = NIBBLE_TRY(sampling.params());
    print_warnings(conflicts(params));
    if (!session.empty()) (void)NIBBLE_TRY(AtomicFile::create(session));  // not after the conversation
    const EngineConfig config = NIBBLE_TRY(options.config());
    bool reading = false;  // a step of the prompt may take seconds: it is not waited for
    const auto backends =
        NIBBLE_TRY(options.backends([&] { return reading && (interrupt_pending() || ending_signal()); }));
    const auto list = pointers(backends);
    const auto path = NIBBLE_TRY(model.path());
    Engine engine = NIBBLE_TRY(Engine::load(path, config, list));
    print_notes(engine, options, list);
    Begun begun;
    Chat chat = NIBBLE_TRY(open(engine, path, params, begun));

    const TerminalGuard terminal;
    ReplView view(::isatty(STDOUT_FILENO), wants_colour(), hide_thinking);
    ReplInput input(terminal, no_history ? std::filesystem::path() : history_path(), complete_command);
    Repl repl{chat, view, input, terminal, reading};
    if (terminal.is_terminal())
        view.line(cat(path.filename().string(), ", context ", engine.ctx(), " tokens, seed ", *params.seed,
                      ". /help lists the commands."));
    converse(repl);
    if (!session.empty()) NIBBLE_TRY(keep(chat, begun));
    return repl.failed && !terminal.is_terminal() ? exit_failure : exit_ok;  // a script wants to know
}

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<ChatCommand>();
    const std::string talk = "Conversation", screen = "Screen";
    flags
        .each_value(
            "--system", [c](const std::string& t) { c->system = t; }, "the system prompt; empty: none")
        .group(talk);
    c->chat_template.add(flags, talk);
    flags.value("--load", c->load, "begin with a conversation saved by /save").type_name("FILE").group(talk);
    flags.value("--session", c->session, "keep conversation and KV cache in this file, and go on from it")
        .excludes("--load")
        .type_name("FILE")
        .group(talk);
    flags.value("-n,--n-predict", c->n, "tokens of an answer [until it ends]")
        .range(-1, int64_t{1} << 40)  // -1 says that there is no limit
        .group(talk);
    flags.value("--context-overflow", c->overflow, "when the context is full; shift: drop also in mid-answer")
        .type_name("drop|stop|shift")
        .show_default()
        .group(talk);
    flags.on("--hide-thinking", c->hide_thinking, "do not show <think> blocks").group(screen);
    flags.on("--no-color", c->no_color, "no colours, as with NO_COLOR").group(screen);
    flags.on("--no-history", c->no_history, "neither read nor keep the history of lines").group(screen);
    c->sampling.add(flags);
    c->model.add(flags);
    c->options.add_all(flags);
    flags.examples("  nibble chat\n  nibble chat -m model.gguf --system \"Answer briefly.\" --temp 0.7");
    return [c] {
        Result<int> code = (*c)();
        end_by_signal(ending_signal(), code);
        return code;
    };
}

}  // namespace

extern const Command chat_command;
const Command chat_command{"chat", "Talk with a model in the terminal", setup};

}  // namespace nibble
