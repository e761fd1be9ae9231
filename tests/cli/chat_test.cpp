// nibble chat as people and pipes meet it: in a real pseudo-terminal, with keys, pastes, resizes and signals.
// What the tiny model says does not matter.
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "ggml/base/mapped_file.h"
#include "tests/cli/common.h"
#include "tests/cli/pty.h"

using namespace nibble;
using namespace nibble::cli_test;

namespace {

// History goes to a scratch folder.
struct Home : Scratch {
    Home() { ::setenv("XDG_STATE_HOME", dir.c_str(), 1); }
    fs::path history() const { return dir / "nibble/history"; }
};

std::vector<std::string> chat(std::vector<std::string> more = {}) {
    std::vector<std::string> args = {NIBBLE_BINARY, "chat", "--seed", "1", "-n", "8"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
}

const std::string prompt = ">>> ", enter = "\r", ctrl_c = "\x03", ctrl_d = "\x04";

// An answer that does not end by itself: the end of a turn is forbidden.
const std::vector<std::string> endless = {"-n",    "100000", "--logit-bias", "4088:-inf,4090:-inf",
                                          "--ctx", "30000"};

}  // namespace

TEST_CASE("chat in a pipe: a message a line, the text alone on stdout") {
    const ProcessResult r = nibble_cli({"chat", "-n", "8", "--seed", "1", "--no-history"},
                                       "Hello\n/undo\nHello\n/bye\nignored\n");
    CHECK(r.code == 0);
    CHECK(r.err.empty());
    CHECK(r.out.find('\x1b') == std::string::npos);
    CHECK(r.out.find("The last turn is gone; 0 messages remain.") != std::string::npos);
    CHECK(r.out.find("tokens/s") == std::string::npos);
}

TEST_CASE("chat: commands, saving and loading, errors that do not end it") {
    const Scratch s;
    const std::string file = (s.dir / "talk.json").string();
    const std::string note = s.file("note.txt", "The goose is golden.");
    const ProcessResult r =
        nibble_cli({"chat", "-n", "8", "--seed", "1", "--no-history", "--system", "Be kind."},
                   cat("/attach ", note, "\nWhat is it?\n/save ", file,
                       "\n/nosuch\n/set top_k 7\n/set top_k "
                       "x\n/params\n/help\n/stats\n/probs\n/regen\n/clear\n/undo\n/load ",
                       file, "\n/tokens\n/template plain\n/edit Who?\n/save ", file, "\n/save ", note, "\n"));
    CHECK(r.code == 1);  // something failed, which a script wants to know
    CHECK(r.err.find("/nosuch: is not a command") != std::string::npos);
    CHECK(r.err.find("top_k: 'x' is not allowed") != std::string::npos);
    CHECK(r.err.find("/undo: the conversation is empty") != std::string::npos);
    CHECK(r.err.find("note.txt is there and holds no conversation") != std::string::npos);
    CHECK(*read_text_file(note) == "The goose is golden.");
    for (const char* expected :
         {"* top_k", "/regenerate", "computed", " %  ", "Loaded 2 messages.", "of 512 tokens"})
        CHECK_MESSAGE(r.out.find(expected) != std::string::npos, expected);
    const auto saved = nlohmann::json::parse(*read_text_file(file));
    REQUIRE(saved["messages"].size() == 3);
    CHECK(saved["messages"][0]["content"] == "Be kind.");
    CHECK(saved["messages"][1]["content"] ==
          "note.txt:\nThe goose is golden.\n\nWho?");  // what is attached stays
    check_refused(nibble_cli({"chat", "--load", note}), 1, "note.txt");
    check_refused(nibble_cli({"chat", "--context-overflow", "ignore"}), 2, "ignore");
}

TEST_CASE("chat: a command that takes no argument refuses words behind it and does nothing") {
    const Scratch s;
    const std::string file = (s.dir / "c.json").string();
    const ProcessResult r = nibble_cli(
        {"chat", "-n", "2", "--seed", "1", "--no-history"},
        cat("Hello\n/clear the table\n/undo all\n/probs abc\n/bye now\n/stats  \n/save ", file, "\n"));
    CHECK(r.code == 1);
    for (const std::string name : {"clear", "undo", "probs", "bye"})
        CHECK_MESSAGE(r.err.find(cat("/", name, ": takes no argument")) != std::string::npos, name);
    CHECK(std::ranges::count(r.err, '\n') == 4);
    CHECK(r.out.find("The most likely") == std::string::npos);
    CHECK(nlohmann::json::parse(*read_text_file(file))["messages"].size() == 2);
}

TEST_CASE("chat: the system prompt is set, shown and removed; --system '' is none, whatever a session has") {
    const ProcessResult r =
        nibble_cli({"chat", "--no-history"},
                   "/system Be kind.\n/system\n/system \"\"\n/system\n/system x\n/system -\n/system\n");
    CHECK(r.code == 0);
    const std::string set = "The system prompt is set.\n",
                      removed = "The system prompt is removed.\nNo system prompt.\n";
    CHECK(r.out == cat(set, "Be kind.\n", removed, set, removed));
    const Scratch s;
    const std::vector<std::string> args = {"chat",         "-n",        "2",
                                           "--no-history", "--session", (s.dir / "session").string()};
    const auto with = [&](const std::vector<std::string>& more, const std::string& input) {
        std::vector<std::string> all = args;
        all.insert(all.end(), more.begin(), more.end());
        return nibble_cli(all, input);
    };
    CHECK(with({"--system", "Be kind."}, "Hello\n").code == 0);
    CHECK(with({}, "/system\n").out == "Be kind.\n");
    CHECK(with({"--system", ""}, "/system\n").out == "No system prompt.\n");
    CHECK(with({}, "/system\n").out == "No system prompt.\n");
}

TEST_CASE("chat: what is attached waits for a message that is answered, and can be taken back") {
    const Scratch s;
    const std::string file = (s.dir / "c.json").string();
    const std::string note = s.file("note.txt", "Gold."), empty = s.file("empty.json", R"({"messages": []})");
    std::string book;
    for (int i = 0; i < 1000; ++i) book += "word ";
    const auto first_message = [&](const std::string& input, int code) {
        const ProcessResult r = nibble_cli({"chat", "-n", "2", "--seed", "1", "--no-history"},
                                           cat("/attach ", note, "\n", input, "\nHello\n/save ", file, "\n"));
        CHECK(r.code == code);
        CHECK((r.err.find("/attach - drops it") != std::string::npos) == (code == 1));
        CHECK((r.out.find("What was attached is dropped.") != std::string::npos) == (code == 0));
        return nlohmann::json::parse(*read_text_file(file))["messages"][0]["content"].get<std::string>();
    };
    CHECK(first_message(book, 1) == "note.txt:\nGold.\n\nHello");
    CHECK(first_message(cat(book, "\n/attach ", note), 1) == "note.txt:\nGold.\n\nnote.txt:\nGold.\n\nHello");
    CHECK(first_message("/attach -", 0) == "Hello");
    CHECK(first_message("/clear", 0) == "Hello");
    CHECK(first_message("/load " + empty, 0) == "Hello");
    // It goes with one message, not with all.
    CHECK(nibble_cli({"chat", "-n", "2", "--no-history"},
                     cat("/attach ", note, "\nOne\nTwo\n/save ", file, "\n/attach -\n"))
              .err == "nibble: /attach: nothing is attached\n");
    CHECK(nlohmann::json::parse(*read_text_file(file))["messages"][2]["content"] == "Two");
    // And stays with it when it is told otherwise, whatever came after.
    CHECK(nibble_cli({"chat", "-n", "2", "--no-history"},
                     cat("/attach ", note, "\nOne\nTwo\n/undo\n/edit Three\n/save ", file, "\n"))
              .code == 0);
    CHECK(nlohmann::json::parse(*read_text_file(file))["messages"][0]["content"] ==
          "note.txt:\nGold.\n\nThree");
}

TEST_CASE("chat in a pipe: line ends and byte order marks of other systems are no text") {
    const Scratch s;
    const std::string file = (s.dir / "c.json").string();
    const ProcessResult r =
        nibble_cli({"chat", "-n", "2", "--seed", "1", "--no-history"},
                   cat("\xEF\xBB\xBFHello\r\n\r\none\\\r\ntwo\r\n/system Be\rkind.\r\n/save ", file, "\r\n"));
    CHECK(r.code == 0);
    const auto saved = nlohmann::json::parse(*read_text_file(file))["messages"];
    REQUIRE(saved.size() == 5);
    CHECK(saved[0]["content"] == "Be\rkind.");
    CHECK(saved[1]["content"] == "Hello");
    CHECK(saved[3]["content"] == "one\ntwo");
}

TEST_CASE("chat in a pipe: messages that cannot be read are an error") {
    check_refused(shell("\"$0\" chat --no-history < /"), 1, "standard input: cannot be read");
}

TEST_CASE("chat: -n -1 is an answer that ends by itself, as for run") {
    CHECK(nibble_cli({"chat", "-n", "-1", "--no-history"}, "/exit\n").code == 0);
    check_refused(nibble_cli({"chat", "-n", "-2", "--no-history"}), 2, "not in range -1 to 1099511627776");
    const Scratch s;
    ::setenv("NIBBLE_CONFIG", s.file("config.toml", "n-predict = -1\n").c_str(), 1);
    const ProcessResult r = nibble_cli({"chat", "--no-history"}, "/exit\n");
    ::unsetenv("NIBBLE_CONFIG");
    CHECK(r.code == 0);
}

TEST_CASE("chat: what fails leaves the conversation as it was, and the next message is answered") {
    const Scratch s;
    const std::string file = (s.dir / "c.json").string();
    std::string book;
    for (int i = 0; i < 1000; ++i) book += "word ";
    const ProcessResult r =
        nibble_cli({"chat", "-n", "5", "--seed", "1", "--samplers", "temperature"},
                   "Hello\n/edit " + book + "\n/set temperature nan\nAnd then?\n/save " + file + "\n");
    CHECK(r.code == 1);
    const auto saved = nlohmann::json::parse(*read_text_file(file))["messages"];
    REQUIRE(saved.size() == 4);
    CHECK(saved[0]["content"] == "Hello");
    CHECK(saved[2]["content"] == "And then?");
    // Nothing is left to choose from; the next message has everything again.
    const ProcessResult stuck = nibble_cli({"chat", "-n", "5", "--seed", "1", "--samplers",
                                            "top_k,logit_bias", "--top-k", "1", "--logit-bias", "343:-inf"},
                                           "hello\n/set samplers temperature\nwho are you\n");
    CHECK(stuck.err.find("excludes every token") != std::string::npos);
    CHECK(stuck.out.size() > std::string("samplers = temperature\n").size());
}

TEST_CASE("chat: a random seed is drawn and told") {
    const auto seeds = [] { return nibble_cli({"chat", "-n", "1"}, "/set seed random\n").out; };
    const std::string one = seeds();
    CHECK(one.starts_with("seed = "));
    CHECK(one.find("random") == std::string::npos);
    CHECK(one != seeds());
}

TEST_CASE("chat on a terminal: an answer with its status line, history with mode 0600, Ctrl-D leaves") {
    const Home home;
    Pty t(chat());
    REQUIRE(t.wait_for(prompt));
    t.type("Tell me a story." + enter);
    CHECK(t.wait_for("\x1b[2m[8 tokens"));
    CHECK(t.wait_for("/512"));
    REQUIRE(t.wait_for(prompt));
    t.type(ctrl_d);
    CHECK(t.wait_end() == 0);
    CHECK(t.restored());
    struct stat s {};
    REQUIRE(::stat(home.history().c_str(), &s) == 0);
    CHECK((s.st_mode & 0777) == 0600);
    CHECK(read_text_file(home.history())->find("story.") != std::string::npos);
    Pty again(chat({"--no-color"}));  // the line comes back with the key up
    REQUIRE(again.wait_for(prompt));
    again.type("\x1b[A");
    CHECK(again.wait_for("Tell me a story."));
    again.type(enter);
    CHECK(again.wait_for("[8 tokens"));
    CHECK(again.seen().find("\x1b[2m") == std::string::npos);
}

TEST_CASE("chat on a terminal: a history that cannot be read is set aside, and the next one is kept") {
    const Home home;
    std::filesystem::create_directories(home.history().parent_path());
    std::ofstream(home.history()) << "no history\n";
    Pty t(chat());
    REQUIRE(t.wait_for(prompt));
    t.type("Tell me a story." + enter);
    REQUIRE(t.wait_for("/512"));
    REQUIRE(t.wait_for(prompt));
    t.type(ctrl_d);
    CHECK(t.wait_end() == 0);
    CHECK(t.seen().find("is no history and is now ") != std::string::npos);
    CHECK(read_text_file(home.history())->find("story.") != std::string::npos);
    CHECK(*read_text_file(home.history().string() + ".damaged") == "no history\n");
}

TEST_CASE("chat on a terminal: Ctrl-C stops the answer and keeps it; at the prompt the second one leaves") {
    const Home home;
    Pty t(chat(endless));
    REQUIRE(t.wait_for(prompt));
    t.type("Tell me a story." + enter);
    REQUIRE(t.wait_for("\n"));
    REQUIRE(t.wait_for_more(200));  // of the answer, and what else is printed with it
    t.type(ctrl_c);
    CHECK(t.wait_for(", stopped]"));
    REQUIRE(t.wait_for(prompt));
    t.type("/save " + (home.dir / "kept.json").string() + enter);
    CHECK(t.wait_for("Saved 2 messages"));
    REQUIRE(t.wait_for(prompt));
    t.type("half a line" + ctrl_c);
    CHECK(t.wait_for("Ctrl-C again"));
    REQUIRE(t.wait_for(prompt));
    t.type(ctrl_c);
    CHECK(t.wait_end() == 0);
    CHECK(t.restored());
    const auto saved = nlohmann::json::parse(*read_text_file(home.dir / "kept.json"));
    CHECK(saved["messages"][1]["content"].get<std::string>().size() > 10);
}

TEST_CASE("chat on a terminal: Ctrl-C on a line with text only discards it") {
    const Home home;
    Pty t(chat());
    REQUIRE(t.wait_for(prompt));
    for (const std::string line : {"abc", "long new line"}) {
        t.type(line);
        REQUIRE(t.wait_for(line));
        t.type(ctrl_c);
        REQUIRE(t.wait_for("Ctrl-C again"));
        REQUIRE(t.wait_for(prompt));
    }
    t.type("one\\" + enter);  // the second line of a message
    REQUIRE(t.wait_for("... "));
    t.type(ctrl_c);
    REQUIRE(t.wait_for("Ctrl-C again"));
    REQUIRE(t.wait_for(prompt));
    t.type(ctrl_c);
    CHECK(t.wait_end() == 0);
    CHECK(t.restored());
}

TEST_CASE("chat on a terminal: several lines by backslash, block, Ctrl-J and paste; wide characters") {
    const Home home;
    const std::string file = (home.dir / "lines.json").string();
    Pty t(chat({"-n", "1"}));
    const auto send = [&](const std::string& keys) {
        REQUIRE(t.wait_for(prompt));
        t.type(keys);
        REQUIRE(t.wait_for("tokens,"));
    };
    send("one\\" + enter + "two" + enter);
    send("\"\"\"" + enter + "three" + enter + "four\"\"\"" + enter);
    send("five\nsix" + enter);
    send("\x1b[200~seven\reight\t/bye\r\x1b[201~nine" + enter);
    send("na\xc3\xafve \xe4\xbd\xa0\xe5\xa5\xbd!\x1b[D\x7f?" + enter);
    // Words by Ctrl-Left and Ctrl-Right, Home in two ways; PageUp, Insert, F1, F5 and Shift-Left are nothing.
    send("one two\x1b[1;5Dx\x1b[1;5Cy\x1b[5~\x1b[2~\x1bOP\x1b[15~z\x1b[1;2D!\x1b[1~<\x1bOH>" + enter);
    send("\x1b[200~a\x1b[31mred\x1b[0m\x1b[201~" + enter);
    send("caf\xe9" + enter);  // Enter is a key, though a byte of another encoding asks for more
    REQUIRE(t.wait_for(prompt));
    t.type("/save " + file + enter);
    CHECK(t.wait_for("Saved 16 messages"));
    const auto saved = nlohmann::json::parse(*read_text_file(file))["messages"];
    CHECK(saved[0]["content"] == "one\ntwo");
    CHECK(saved[2]["content"] == "three\nfour");
    CHECK(saved[4]["content"] == "five\nsix");
    CHECK(saved[6]["content"] == "seven\neight\t/bye\nnine");
    CHECK(saved[8]["content"] == "na\xc3\xafve \xe4\xbd\xa0?!");
    CHECK(saved[10]["content"] == "><one xtwoy!z");
    CHECK(saved[12]["content"] == "ared");
    CHECK(saved[14]["content"] == "caf\xef\xbf\xbd");
}

TEST_CASE("chat on a terminal: completion of commands, keys and paths; an editor; a resize") {
    const Home home;
    home.file("notes.txt", "x");
    ::setenv("EDITOR", "printf edited >", 1);
    Pty t(chat());
    REQUIRE(t.wait_for(prompt));
    t.resize(30, 60);
    t.type("/temp\t");
    CHECK(t.wait_for("late "));
    t.type(ctrl_c);
    REQUIRE(t.wait_for(prompt));
    t.type("/set temperat\t0.5" + enter);
    REQUIRE(t.wait_for(prompt));
    t.type("/set temperature" + enter);
    CHECK(t.wait_for("temperature = 0.5"));
    REQUIRE(t.wait_for(prompt));
    t.type("/attach " + home.dir.string() + "/not\t" + enter);
    CHECK(t.wait_for("1 bytes, goes before"));
    REQUIRE(t.wait_for(prompt));
    t.type("draft\x07");
    CHECK(t.wait_for("edited"));
    t.type(enter);
    CHECK(t.wait_for("[8 tokens"));
    t.type("/bye" + enter);
    CHECK(t.wait_end() == 0);
    CHECK(t.restored());
}

TEST_CASE("chat on a terminal: killed at the prompt and in mid-answer, the terminal is as it was") {
    const Home home;
    for (const int signal : {SIGTERM, SIGHUP, SIGSEGV, SIGABRT}) {
        Pty t(chat());
        REQUIRE(t.wait_for(prompt));
        t.type("a");
        REQUIRE(t.wait_for("a"));
        CHECK(!t.restored());
        t.signal(signal);
        CHECK(t.wait_end() == 128 + signal);
        CHECK(t.restored());
        CHECK(t.seen().rfind("\x1b[?2004l") > t.seen().rfind("\x1b[?2004h"));
    }
    Pty t(chat(endless));
    REQUIRE(t.wait_for(prompt));
    t.type("Tell me a story." + enter);
    REQUIRE(t.wait_for("\n"));
    REQUIRE(t.wait_for_more(200));  // of the answer, and what else is printed with it
    t.signal(SIGTERM);
    CHECK(t.wait_end() == 128 + SIGTERM);
    CHECK(t.restored());
}

TEST_CASE("plain nibble on a terminal is the chat; without one it says what is missing") {
    const Home home;
    Pty t({NIBBLE_BINARY});
    CHECK(t.wait_for("/help lists the commands"));
    REQUIRE(t.wait_for(prompt));
    t.type(ctrl_d);
    CHECK(t.wait_end() == 0);
    CHECK(nibble_cli({}).code == 2);
}

TEST_CASE("chat --session: a second run goes on without prefill; another cache type is refused") {
    const Scratch s;
    const std::string file = (s.dir / "session").string();
    const std::vector<std::string> args = {"chat", "--seed",       "1",         "-n",
                                           "8",    "--no-history", "--session", file};
    CHECK(nibble_cli(args, "Tell me a story about a fox.\nAnd then?\n").code == 0);
    const ProcessResult r = nibble_cli(args, "Who?\n/stats\n");
    CHECK(r.code == 0);
    CHECK(r.err.find("4 messages, ") != std::string::npos);
    CHECK(r.out.find("the rest reused") != std::string::npos);
    CHECK(nibble_cli(args, "/clear\n").code == 0);
    CHECK(nibble_cli(args, "/exit\n").err.find("0 messages, ") != std::string::npos);
    // As mktemp makes one.
    auto fresh = args;
    fresh.back() = s.file("empty", "");
    CHECK(nibble_cli(fresh, "/exit\n").err.empty());
    CHECK(fs::file_size(fresh.back()) == 0);
    CHECK(nibble_cli(fresh, "Who?\n").err.empty());
    CHECK(nibble_cli(fresh, "/exit\n").err.find("2 messages, ") != std::string::npos);
    // Not only when all has been said.
    check_refused(nibble_cli({"chat", "--session", "/nonexistent/x"}, "Who?\n"), 1,
                  "/nonexistent/x: the folder");
    check_refused(nibble_cli({"chat", "--session", s.dir.string()}, "Who?\n"), 2, "is a folder");
    auto other = args;
    other.insert(other.end(), {"--kv-type", "int8"});
    check_refused(nibble_cli(other, "Who?\n"), 1, "give --kv-type f16");
}
