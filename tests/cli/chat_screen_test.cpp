// nibble chat and the screen it lives on: another size, Ctrl-Z and fg in a shell, lists in a narrow window,
// and notices in the middle of an answer.
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "tests/cli/common.h"
#include "tests/cli/pty.h"

using namespace nibble;
using namespace nibble::cli_test;

namespace {

struct Home : Scratch {
    Home() { ::setenv("XDG_STATE_HOME", dir.c_str(), 1); }
};

const std::string prompt = ">>> ", enter = "\r";

}  // namespace

TEST_CASE(
    "chat on a terminal: after a resize the line is drawn anew from its first row, and editing goes on") {
    const Home home;
    const std::string file = (home.dir / "talk.json").string();
    Pty t({NIBBLE_BINARY, "chat", "-n", "1"});
    REQUIRE(t.wait_for(prompt));
    const std::string text(60, 'x');
    t.type(text);
    REQUIRE(t.wait_for(text));
    t.resize(24, 40);
    // 64 columns are two rows of 40: one row up, to the left, cleared, and shown again.
    CHECK(t.wait_for("\x1b[1A\r\x1b[J"));
    REQUIRE(t.wait_for(prompt + std::string(36, 'x')));
    t.type("\x01yy" + enter);
    REQUIRE(t.wait_for("[1 tokens"));
    t.type("/save " + file + enter);
    REQUIRE(t.wait_for("Saved 2 messages"));
    CHECK(nlohmann::json::parse(*read_text_file(file))["messages"][0]["content"] == "yy" + text);
    t.type("/set \t");
    CHECK(t.wait_for("dry_allowed_length"));
    const size_t from = t.seen().rfind("dry_allowed_length");
    REQUIRE(t.wait_for("xtc_threshold"));
    size_t width = 0;
    for (const char c : t.seen().substr(from)) {
        width = c == '\r' || c == '\n' ? 0 : width + 1;
        CHECK(width <= 40);
    }
}

TEST_CASE("chat in a shell: Ctrl-Z gives the terminal back as it was, fg takes it up again with the line") {
    const Home home;
    const std::string shell = "/bin/bash";
    if (!std::filesystem::exists(shell)) {
        MESSAGE("no /bin/bash here: Ctrl-Z is not tested");
        return;
    }
    const std::string file = (home.dir / "talk.json").string();
    Pty t({shell, "--norc", "--noprofile", "-i"});
    t.type("bind 'set enable-bracketed-paste off'; PS1='shell: '\n");
    REQUIRE(t.wait_for("shell: "));
    t.type(cat("stty -a | cksum; ", NIBBLE_BINARY, " chat -n 3\n"));
    REQUIRE(t.wait_for(prompt));
    const auto checksum = [&](size_t from) {
        const size_t at = t.seen().find_first_of("0123456789", t.seen().find('\n', from));
        return t.seen().substr(at, t.seen().find(' ', at) - at);
    };
    const std::string before = checksum(t.seen().rfind("cksum;"));
    t.type("half a");
    REQUIRE(t.wait_for("half a"));
    t.type("\x1a");
    REQUIRE(t.wait_for("Stopped"));
    REQUIRE(t.wait_for("shell: "));
    const size_t from = t.seen().size();
    t.type("stty -a | cksum\n");
    REQUIRE(t.wait_for("shell: "));
    CHECK(checksum(from) == before);
    t.type("fg\n");
    REQUIRE(t.wait_for(prompt + "half a"));
    t.type(" line\x01my " + enter);
    REQUIRE(t.wait_for("tokens,"));
    t.type("/save " + file + enter);
    REQUIRE(t.wait_for("Saved 2 messages"));
    CHECK(nlohmann::json::parse(*read_text_file(file))["messages"][0]["content"] == "my half a line");
    t.type("/bye" + enter);
    REQUIRE(t.wait_for("shell: "));
    t.type("exit\n");
    CHECK(t.wait_end() == 0);
}

TEST_CASE(
    "chat: one message is not several; a conversation that was read is sent whole; what has failed shows") {
    const Scratch s;
    const std::string one = s.file("one.json", R"({"messages": [{"role": "user", "content": "Hi"}]})");
    CHECK(nibble_cli({"chat", "--no-history"}, "/set tmp\n").err ==
          "nibble: /set: there is no parameter 'tmp' (see /params)\n");
    const ProcessResult r =
        nibble_cli({"chat", "-n", "2", "--no-history"},
                   cat("/stats\n/load ", one, "\n/set top_k 7\n/template plain\n/system Be kind.\n"));
    CHECK(r.code == 1);
    CHECK(r.err == "nibble: /stats: there is no answer yet\n");
    CHECK(r.out == "Loaded 1 message.\ntop_k = 7\nThe template is plain.\nThe system prompt is set.\n");
    // After turns were left out for want of room, a shorter conversation with more turns begins at its
    // beginning.
    std::string talk, turns;
    for (int i = 0; i < 6; ++i)
        talk += cat(i ? "," : "", R"({"role": ")", i % 2 ? "assistant" : "user", R"(", "content": "A"})");
    const std::string many = s.file("many.json", cat(R"({"messages": [)", talk, "]}"));
    for (int i = 0; i < 4; ++i) turns += "Tell me a story about a fox and a goose who went to the mill.\n";
    const auto counted = [&](const std::string& before) {
        const std::string out = nibble_cli({"chat", "-c", "128", "-n", "30", "--seed", "3", "--no-history"},
                                           cat(before, "/load ", many, "\n/tokens\n"))
                                    .out;
        return out.substr(out.rfind("Loaded"));
    };
    CHECK(counted(turns) == counted(""));
    const ProcessResult stop =
        nibble_cli({"chat", "-c", "64", "--context-overflow", "stop", "--no-history"}, turns + turns);
    CHECK(stop.code == 1);
    CHECK(stop.err.find("the context holds 64") != std::string::npos);
}

TEST_CASE("chat: what the model thinks is dimmed on a terminal, and hidden on demand") {
    const Home home;
    const std::string thinks = home.file("thinks.jinja",
                                         "{% for m in messages %}{{ m.content }}\n{% endfor %}{% if "
                                         "add_generation_prompt %}<think>\n{% endif %}");
    const auto args = [&](std::vector<std::string> more) {
        std::vector<std::string> all = {NIBBLE_BINARY, "chat", "-n", "4", "--template", thinks};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    for (const char* given : {"", "--no-color", "--hide-thinking"}) {
        const std::string flag = given;
        INFO(flag);
        Pty t(args(flag.empty() ? std::vector<std::string>{} : std::vector<std::string>{flag}));
        REQUIRE(t.wait_for(prompt));
        t.type("Hi" + enter);
        REQUIRE(t.wait_for("[4 tokens"));
        const bool shown = flag != "--hide-thinking";
        CHECK((t.seen().find("<think>") != std::string::npos) == shown);
        CHECK((t.seen().find("\x1b[2m<think>") != std::string::npos) == flag.empty());
        t.type("/bye" + enter);
        CHECK(t.wait_end() == 0);
        CHECK(t.restored());
    }
    ::setenv("NO_COLOR", "1", 1);
    const ProcessResult piped = nibble_cli({"chat", "-n", "4", "--template", thinks, "--no-history"}, "Hi\n");
    ::unsetenv("NO_COLOR");
    CHECK(piped.out.starts_with("<think>\n"));
    CHECK(piped.out.find('\x1b') == std::string::npos);
}

TEST_CASE("chat on a terminal: paths with spaces and from ~, completed; a slash after a space is text") {
    const Home home;
    home.file("my note.txt", "four");
    const char* const before = std::getenv("HOME");
    const std::string kept = before ? before : "";
    ::setenv("HOME", home.dir.c_str(), 1);
    Pty t({NIBBLE_BINARY, "chat", "-n", "1", "--no-history"});
    ::setenv("HOME", kept.c_str(), 1);
    REQUIRE(t.wait_for(prompt));
    t.type("/attach ~/my n\t" + enter);
    CHECK(t.wait_for("my note.txt, 4 bytes"));
    REQUIRE(t.wait_for(prompt));
    t.type("/etc/passwd is what?" + enter);
    CHECK(t.wait_for("is not a command"));
    REQUIRE(t.wait_for(prompt));
    t.type(" /etc/passwd is what?" + enter);
    REQUIRE(t.wait_for("[1 tokens"));
    t.type("/save ~/talk.json" + enter);
    REQUIRE(t.wait_for("Saved 2 messages"));
    const auto saved = nlohmann::json::parse(*read_text_file(home.dir / "talk.json"));
    CHECK(saved["messages"][0]["content"] == "my note.txt:\nfour\n\n /etc/passwd is what?");
}

TEST_CASE("a terminal is told how far a long prompt is, until the answer begins") {
    const Home home;
    const std::string many = "Tell me a story about a king and his three daughters.";
    Pty t({NIBBLE_BINARY, "chat", "-n", "2", "--batch", "8"});
    REQUIRE(t.wait_for(prompt));
    t.type(many + enter);
    REQUIRE(t.wait_for("reading the prompt, 0 of "));
    REQUIRE(t.wait_for("reading the prompt, 8 of "));
    REQUIRE(t.wait_for("\r\x1b[K"));
    CHECK(t.wait_for("[2 tokens"));
    const std::vector<std::string> args = {NIBBLE_BINARY, "run", "-p",     many, "-n",    "2",
                                           "--batch",     "8",   "--seed", "1",  "--json"};
    Pty run(args);
    CHECK(run.wait_for("reading the prompt, 0 of "));
    CHECK(run.wait_for("reading the prompt, 8 of "));
    CHECK(run.wait_for("\r\x1b[K{"));
    CHECK(run.wait_end() == 0);
    for (const std::string quiet :
         {"TERM=dumb exec \"$0\" run", "exec \"$0\" run -q", "exec \"$0\" run 2>&-"}) {
        CAPTURE(quiet);
        Pty silent({"/bin/sh", "-c", cat(quiet, " -p '", many, "' -n 2 --batch 8"), NIBBLE_BINARY});
        CHECK(silent.wait_end() == 0);
        CHECK(silent.seen().find("reading") == std::string::npos);
    }
}

TEST_CASE("chat on a terminal that knows no escape sequences, and with its output in a file, sends none") {
    const Home home;
    const std::string out = (home.dir / "out").string();
    for (const std::string term : {"TERM=dumb; ", "TERM=; ", "unset TERM; "}) {
        CAPTURE(term);
        Pty t({"/bin/sh", "-c", term + "exec \"$0\" chat -n 2", NIBBLE_BINARY});
        REQUIRE(t.wait_for(prompt));
        t.type("Hi" + enter);
        REQUIRE(t.wait_for("[2 tokens"));
        t.type("/bye" + enter);
        CHECK(t.wait_end() == 0);
        CHECK(t.restored());
        CHECK(t.seen().find('\x1b') == std::string::npos);
    }
    Pty t({"/bin/sh", "-c", cat("exec \"$0\" chat -n 2 --seed 1 > ", out), NIBBLE_BINARY});
    t.type("Hi\n/bye\n");
    CHECK(t.wait_end() == 0);
    CHECK(t.restored());
    CHECK(*read_text_file(out) == nibble_cli({"chat", "-n", "2", "--seed", "1"}, "Hi\n/bye\n").out);
}
