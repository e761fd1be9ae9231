// libedit asks a function of ours for characters: there UTF-8 is put together, pastes are recognised, and a
// line feed within a message is shown as U+2424 (a pasted tab as U+2409) until the line is complete.
#include "tools/repl/input.h"

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <deque>
#include <fstream>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "src/text/utf8.h"
#include "tools/repl/file_lock.h"
#include "tools/standard_input.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view line_feed_shown = "\xE2\x90\xA4";  // U+2424
constexpr std::string_view tab_shown = "\xE2\x90\x89";        // U+2409
constexpr wchar_t line_feed_char = 0x2424, tab_char = 0x2409;
constexpr int history_size = 2000, prompt_width = 4;

struct HistoryEnd {
    void operator()(History* h) const { ::history_end(h); }
};
using HistoryPtr = std::unique_ptr<History, HistoryEnd>;

HistoryPtr new_history() {
    HistoryPtr h(::history_init());
    if (!h) return h;
    HistEvent event;
    ::history(h.get(), &event, H_SETSIZE, history_size);
    ::history(h.get(), &event, H_SETUNIQUE, 1);
    return h;
}

// False when `file` holds something that cannot be read as a history.
bool load(History& h, const fs::path& file) {
    std::error_code ec;
    if (fs::file_size(file, ec) == 0 || ec) return true;
    HistEvent event;
    return ::history(&h, &event, H_LOAD, file.c_str()) >= 0;
}

void add_line(History& h, const std::string& line) {
    HistEvent event;
    ::history(&h, &event, H_ENTER, line.c_str());
}

// Adds lines to what the file holds by now: other chats may have ended meanwhile, or be ending.
void append_history(const fs::path& file, const std::vector<std::string>& lines) {
    std::error_code ec;
    fs::create_directories(file.parent_path(), ec);
    ec.clear();
    const FileLock lock(file, O_WRONLY | O_CREAT);
    if (!lock.is_open()) return;
    ::chmod(file.c_str(), 0600);
    HistoryPtr all = new_history();
    if (all && !load(*all, file)) {  // set aside, or nothing would be kept from now on
        const fs::path aside = file.string() + ".damaged";
        if (fs::exists(aside, ec)) return;
        fs::rename(file, aside, ec);
        std::fprintf(stderr, "nibble: %s is no history and is now %s\n", file.c_str(), aside.c_str());
        all = new_history();
    }
    if (!all || ec) return;
    for (const std::string& line : lines) add_line(*all, line);
    HistEvent event;
    ::history(all.get(), &event, H_SAVE, file.c_str());
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
    std::string out;
    for (size_t hit; (hit = text.find(from)) != text.npos; text.remove_prefix(hit + from.size()))
        out.append(text.substr(0, hit)).append(to);
    return out.append(text);
}

// Columns on the screen; characters that have none there count one.
int display_width(const std::string& text) {
    std::vector<wchar_t> wide(text.size() + 1);
    const size_t n = std::mbstowcs(wide.data(), text.c_str(), wide.size());
    if (n == static_cast<size_t>(-1)) return static_cast<int>(text.size());
    int columns = 0;
    for (size_t i = 0; i < n; ++i) columns += std::max(1, ::wcwidth(wide[i]));
    return columns;
}

// Words one below the other, in as many columns as fit.
std::string in_columns(const std::vector<std::string>& words, int screen) {
    int widest = 0;
    for (const std::string& w : words) widest = std::max(widest, display_width(w));
    const auto n_columns = static_cast<size_t>(std::max(1, screen / (widest + 2)));
    const size_t n_rows = (words.size() + n_columns - 1) / n_columns;
    std::string out;
    for (size_t row = 0; row < n_rows; ++row) {
        for (size_t i = row; i < words.size(); i += n_rows) {
            out += words[i];
            if (i + n_rows < words.size())
                out.append(static_cast<size_t>(widest + 2 - display_width(words[i])), ' ');
        }
        out += '\n';
    }
    return out;
}

void use_utf8() {
    std::setlocale(LC_CTYPE, "");
    if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct ReplInput::State {
    const TerminalGuard* terminal = nullptr;
    EditLine* el = nullptr;
    HistoryPtr history;
    fs::path history_file;
    std::vector<std::string> entered;  // not yet in the file
    Completer completer;
    std::optional<QuietKeys> quiet;
    std::deque<wchar_t> queue;  // read and not yet asked for
    bool pasting = false, pasted_return = false, more = false;
    bool typed = false;  // since the line began: libedit has forgotten a line that was interrupted
    std::string piped;
    size_t piped_at = 0;
    std::optional<Error> piped_failure;
    bool piped_begins = true;

    static State& of(EditLine* el) {
        void* data = nullptr;
        ::el_get(el, EL_CLIENTDATA, &data);
        return *static_cast<State*>(data);
    }
    // Waits for input: 0, or -1: end, -2: interrupted, -3: the screen has changed. Signals that come just
    // before the wait are held back until it begins: otherwise they would only be seen after the next key.
    static int wait() {
        sigset_t held, before;
        ::sigemptyset(&held);
        for (const int s : {SIGINT, SIGWINCH, SIGTSTP, SIGTERM, SIGHUP}) ::sigaddset(&held, s);
        ::sigprocmask(SIG_BLOCK, &held, &before);
        pollfd input{STDIN_FILENO, POLLIN, 0};
        const bool signalled = ending_signal() || interrupt_pending() || screen_changed() ||
                               (::ppoll(&input, 1, nullptr, &before) < 0 && errno == EINTR);
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        if (ending_signal()) return -1;
        return !signalled ? 0 : interrupt_pending() ? -2 : -3;
    }
    // One byte, or as wait(). Not more at once: an editor reads from the same terminal.
    int byte() {
        if (put_back >= 0) return std::exchange(put_back, -1);
        if (const int why = wait(); why < 0) return why;
        unsigned char c = 0;
        return ::read(STDIN_FILENO, &c, 1) == 1 ? c : -1;
    }
    // The same of a pipe or file, which nobody else reads.
    int piped_byte() {
        if (piped_at == piped.size()) {
            if (const int why = wait(); why < 0) return why;
            Result<std::string> some = read_some_standard_input();
            if (!some) piped_failure = some.error();
            piped = some ? std::move(*some) : std::string();
            piped_at = 0;
            if (piped.empty()) return -1;
        }
        return static_cast<unsigned char>(piped[piped_at++]);
    }
    int put_back = -1;  // read, to be read again
    std::optional<std::string> piped_line();
    int next(wchar_t* out);
    void escape();
    static std::string key_of(const std::string& sequence);
    static int get_char(EditLine* el, wchar_t* out) { return of(el).next(out); }
    static unsigned char complete(EditLine* el, int);
    static unsigned char open_editor(EditLine* el, int);
    static const char* prompt(EditLine* el) { return of(el).more ? "... " : ">>> "; }
    void replace_line(const std::string& text) const;
    void follow_screen() const;
    void bracket_pastes(bool on) const {
        if (terminal->has_screen()) std::fputs(on ? "\x1b[?2004h" : "\x1b[?2004l", stdout);
        std::fflush(stdout);
    }
    static int columns() {
        winsize size{};
        return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    }
};

// The line is drawn anew when the screen has changed. A terminal wraps what it shows to its new width, so the
// prompt is as many rows above the cursor as what lies between takes there.
void ReplInput::State::follow_screen() const {
    const ScreenChange change = take_screen_change();
    if (!change.resized || !terminal->has_screen()) return;
    const LineInfo* info = ::el_line(el);
    const std::string before(info->buffer, static_cast<size_t>(info->cursor - info->buffer));
    ::el_resize(el);
    const int rows = change.continued ? 0 : (prompt_width + display_width(before)) / columns();
    if (rows > 0) std::printf("\x1b[%dA", rows);
    std::fputs("\r\x1b[J", stdout);
    bracket_pastes(true);
    ::el_set(el, EL_REFRESH);
}

// What the editor is given for a key of a terminal (ECMA-48, 5.4; xterm's modifiers): arrows with Ctrl or Alt
// move by words, and keys that it does not know are nothing, where it would take their last bytes for text.
std::string ReplInput::State::key_of(const std::string& sequence) {
    const char final = sequence.back();
    const std::string parameters = sequence.substr(2, sequence.size() - 3);
    const bool by_word = parameters == "1;3" || parameters == "1;5";
    if (by_word && (final == 'C' || final == 'D')) return final == 'C' ? "\033f" : "\033b";
    if (std::string_view("ABCDHF").find(final) != std::string_view::npos)
        return {sequence[0], sequence[1], final};
    if (final != '~') return {};
    if (parameters == "1" || parameters == "7") return "\x1b[H";
    if (parameters == "4" || parameters == "8") return "\x1b[F";
    return parameters == "3" ? sequence : "";
}

// Behind ESC: the border of a paste, a key, or what is typed with Alt.
void ReplInput::State::escape() {
    std::string seen = "\x1b";
    const auto more = [&] {
        const int c = byte();
        if (c >= 0) seen += static_cast<char>(c);
        return c >= 0;
    };
    constexpr size_t longest = 32;
    bool whole = more() && (seen[1] == '[' || seen[1] == 'O');
    if (whole) {
        whole = more();
        while (whole && seen[1] == '[' && (seen.back() < 0x40 || seen.back() > 0x7E) && seen.size() < longest)
            whole = more();
    }
    if (seen == "\x1b[200~" || seen == "\x1b[201~") {
        pasting = seen == "\x1b[200~";
        return;
    }
    if (pasting) return;  // colours of a text are no commands
    if (whole) seen = key_of(seen);
    for (const char c : seen) queue.push_back(static_cast<unsigned char>(c));
}

int ReplInput::State::next(wchar_t* out) {
    while (queue.empty()) {
        const int c = byte();
        if (c == -3) {
            follow_screen();
            continue;
        }
        if (c < 0) {
            errno = EINTR;
            return c == -2 ? -1 : 0;
        }
        const bool after_return = std::exchange(pasted_return, pasting && c == '\r');
        if (c == '\x1b') {
            escape();
        } else if (c == '\r') {
            queue.push_back(pasting ? line_feed_char : L'\n');
        } else if (c == '\n') {
            if (!after_return) queue.push_back(line_feed_char);
        } else if (pasting && c == '\t') {
            queue.push_back(tab_char);
        } else if (pasting && (c < ' ' || c == 0x7F)) {
            queue.push_back(L' ');  // control characters of a paste are no commands
        } else if (c < 0x80) {
            queue.push_back(static_cast<wchar_t>(c));
        } else {
            const int size = utf8_length(static_cast<unsigned char>(c));
            wchar_t w = static_cast<wchar_t>(size == 2 ? c & 0x1F : size == 3 ? c & 0x0F : c & 0x07);
            bool good = size > 1;
            for (int i = 1; good && i < size; ++i) {
                const int b = byte();
                good = b >= 0 && (b & 0xC0) == 0x80;
                if (!good) put_back = b;  // a key of its own
                w = static_cast<wchar_t>((w << 6) | (b & 0x3F));
            }
            queue.push_back(good ? w : L'\xFFFD');
        }
    }
    *out = queue.front();
    queue.pop_front();
    typed = true;
    return 1;
}

// Without what other systems put around lines: a byte order mark before the first, a return behind each.
std::optional<std::string> ReplInput::State::piped_line() {
    std::string text;
    int c = 0;
    while ((c = piped_byte()) >= 0 && c != '\n') text += static_cast<char>(c);
    if (c < 0 && text.empty()) return {};
    if (std::exchange(piped_begins, false)) text = std::string(without_byte_order_mark(text));
    if (text.ends_with('\r')) text.pop_back();
    return text;
}

void ReplInput::State::replace_line(const std::string& text) const {
    const LineInfo* info = ::el_line(el);
    ::el_cursor(el, static_cast<int>(info->lastchar - info->cursor));
    info = ::el_line(el);
    ::el_deletestr(el, static_cast<int>(info->lastchar - info->buffer));
    ::el_insertstr(el, replaced(text, "\n", line_feed_shown).c_str());
}

unsigned char ReplInput::State::complete(EditLine* el, int) {
    State& s = of(el);
    const LineInfo* info = ::el_line(el);
    const std::string before(info->buffer, static_cast<size_t>(info->cursor - info->buffer));
    Completions c = s.completer(before);
    if (c.words.empty()) return CC_REFRESH_BEEP;
    std::string common = c.words[0];
    for (const std::string& w : c.words) {
        const auto differs = std::mismatch(common.begin(), common.end(), w.begin(), w.end()).first;
        common.erase(differs, common.end());
    }
    if (c.words.size() == 1 && !common.ends_with('/')) common += ' ';
    const std::string word = before.substr(std::min(c.begin, before.size()));
    if (common.size() > word.size()) {
        ::el_insertstr(el, common.substr(word.size()).c_str());
        return CC_REFRESH;
    }
    std::printf("\n%s", in_columns(c.words, s.columns()).c_str());
    std::fflush(stdout);
    return CC_REDISPLAY;
}

unsigned char ReplInput::State::open_editor(EditLine* el, int) {
    State& s = of(el);
    const LineInfo* info = ::el_line(el);
    const std::string text(info->buffer, static_cast<size_t>(info->lastchar - info->buffer));
    std::fputs("\n", stdout);  // what the editor says begins a line
    std::fflush(stdout);
    const auto edited = edit_text(*s.terminal, replaced(text, line_feed_shown, "\n"));
    if (edited)
        s.replace_line(*edited);
    else
        std::puts("the editor failed; the text is unchanged (set $EDITOR)");
    return CC_REDISPLAY;
}

ReplInput::ReplInput(const TerminalGuard& terminal, fs::path history, Completer completer)
    : state_(std::make_unique<State>()) {
    State& s = *state_;
    s.terminal = &terminal;
    s.completer = std::move(completer);
    if (!terminal.is_terminal()) return;
    use_utf8();
    s.el = ::el_init("nibble", stdin, stdout, stderr);
    s.history_file = std::move(history);
    s.history = new_history();
    if (s.history) (void)load(*s.history, s.history_file);
    if (!s.el || !s.history) return;
    ::el_set(s.el, EL_CLIENTDATA, &s);
    ::el_set(s.el, EL_EDITOR, "emacs");
    ::el_set(s.el, EL_PROMPT, &State::prompt);
    ::el_set(s.el, EL_HIST, ::history, s.history.get());
    ::el_set(s.el, EL_GETCFN, &State::get_char);
    ::el_set(s.el, EL_ADDFN, "nibble-complete", "complete", &State::complete);
    ::el_set(s.el, EL_ADDFN, "nibble-editor", "edit the line in $EDITOR", &State::open_editor);
    ::el_set(s.el, EL_BIND, "^I", "nibble-complete", nullptr);
    ::el_set(s.el, EL_BIND, "^G", "nibble-editor", nullptr);
    ::el_set(s.el, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    ::el_source(s.el, nullptr);  // the user's ~/.editrc
    s.quiet.emplace();
    ::el_set(s.el, EL_SETTY, "-d", "-icrnl", "-inlcr", nullptr);  // Enter and Ctrl-J are different keys
}

ReplInput::~ReplInput() {
    State& s = *state_;
    if (!s.entered.empty() && !s.history_file.empty()) append_history(s.history_file, s.entered);
    if (s.el) ::el_end(s.el);
}

std::optional<std::string> ReplInput::line(bool more, Input& why) {
    State& s = *state_;
    s.more = more;
    if (!s.el) {
        auto text = s.piped_line();
        why.kind = interrupt_pending() ? Input::Kind::interrupted : Input::Kind::end;
        why.failure = s.piped_failure;
        return text;
    }
    s.bracket_pastes(true);
    if (take_screen_change().resized) ::el_resize(s.el);
    s.typed = false;
    int n = 0;
    errno = 0;
    const char* raw = ::el_gets(s.el, &n);
    if (s.quiet) s.quiet->again();  // libedit leaves a terminal that echoes
    std::string text = raw && n > 0 ? std::string(raw, static_cast<size_t>(n)) : std::string();
    s.bracket_pastes(false);
    s.pasting = false;
    if (text.empty()) {
        std::fputc('\n', stdout);
        why.kind = take_interrupt() ? Input::Kind::interrupted : Input::Kind::end;
        why.typed = more || s.typed;
        return {};
    }
    if (text.ends_with('\n')) text.pop_back();
    if (text.find_first_not_of(' ') != std::string::npos) {
        add_line(*s.history, text);
        s.entered.push_back(text);
    }
    return replaced(replaced(text, line_feed_shown, "\n"), tab_shown, "\t");
}

Input ReplInput::read() {
    constexpr std::string_view block = "\"\"\"";
    Input in;
    auto first = line(false, in);
    if (!first) return in;
    std::string text = std::move(*first);
    const bool in_block = text.starts_with(block);
    if (in_block) text.erase(0, block.size());
    while (in_block ? !text.ends_with(block) : text.ends_with('\\')) {
        if (!in_block) text.pop_back();
        auto next = line(true, in);
        if (!next && in.kind == Input::Kind::interrupted) return in;
        if (!next) break;
        if (!in_block || !text.empty()) text.push_back('\n');
        text.append(*next);
    }
    if (in_block && text.ends_with(block)) text.erase(text.size() - block.size());
    return {Input::Kind::message, text};
}

std::optional<std::string> edit_text(const TerminalGuard& terminal, const std::string& text) {
    const char* editor = std::getenv("VISUAL");
    if (!editor || !*editor) editor = std::getenv("EDITOR");
    if (!editor || !*editor) editor = "vi";
    std::error_code no_folder;
    std::string path = (fs::temp_directory_path(no_folder) / "nibble-XXXXXX").string();
    if (no_folder) return {};
    const int fd = ::mkstemp(path.data());
    if (fd < 0) return {};
    const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(fd);
    termios ours{};
    const bool known = ::tcgetattr(STDIN_FILENO, &ours) == 0;
    terminal.restore();
    // The shell outlives a Ctrl-C that the editor takes.
    const std::string command = cat("trap : INT QUIT; ", editor, " \"$0\"");
    // As system() does: what is typed to the editor is not meant for us.
    struct sigaction ignore {
    }, interrupt{}, quit{};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGINT, &ignore, &interrupt);
    ::sigaction(SIGQUIT, &ignore, &quit);
    const pid_t pid = written ? ::fork() : -1;
    if (pid == 0) {
        ::signal(SIGINT, SIG_DFL);
        ::signal(SIGQUIT, SIG_DFL);
        ::execl("/bin/sh", "sh", "-c", command.c_str(), path.c_str(), nullptr);
        ::_exit(127);
    }
    int status = -1;
    if (pid > 0)
        while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    ::sigaction(SIGINT, &interrupt, nullptr);
    ::sigaction(SIGQUIT, &quit, nullptr);
    if (known) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &ours);
    std::optional<std::string> result;
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        std::ifstream in(path, std::ios::binary);
        result.emplace(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
        while (result->ends_with('\n')) result->pop_back();
    }
    ::unlink(path.c_str());
    return result;
}

fs::path history_path() {
    if (const char* state = std::getenv("XDG_STATE_HOME"); state && *state)
        return fs::path(state) / "nibble/history";
    if (const char* home = std::getenv("HOME"); home && *home)
        return fs::path(home) / ".local/state/nibble/history";
    return {};
}

}  // namespace nibble
