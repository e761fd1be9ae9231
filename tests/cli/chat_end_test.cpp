// nibble chat told to end by others: SIGTERM, a closed terminal, a job that is stopped. What was said is
// kept.
#include "ggml/base/mapped_file.h"
#include "tests/cli/common.h"
#include "tests/cli/pty.h"

using namespace nibble;
using namespace nibble::cli_test;

namespace {

struct Home : Scratch {
    std::string session = (dir / "session").string();
    Home() { ::setenv("XDG_STATE_HOME", dir.c_str(), 1); }
    std::vector<std::string> chat(std::vector<std::string> more = {}) const {
        std::vector<std::string> args = {NIBBLE_BINARY, "chat", "--seed", "1", "--session", session};
        args.insert(args.end(), more.begin(), more.end());
        return args;
    }
    // How many messages the session holds, as the program tells when it goes on from it.
    std::string kept() const { return kept(session); }
    static std::string kept(const std::string& file) {
        const ProcessResult r = nibble_cli({"chat", "--session", file, "--no-history"}, "/exit\n");
        const std::string before = cat(file, ": ");
        const size_t at = r.err.find(before), end = r.err.find(',', std::min(at, r.err.size()));
        return at == std::string::npos ? r.err : r.err.substr(at + before.size(), end - at - before.size());
    }
};

const std::string prompt = ">>> ", enter = "\r";

// One message, and its answer of four tokens.
void say_hello(Pty& t) {
    REQUIRE(t.wait_for(prompt));
    t.type("Hello" + enter);
    REQUIRE(t.wait_for("[4 tokens"));
    REQUIRE(t.wait_for(prompt));
}

}  // namespace

TEST_CASE("chat: SIGTERM and SIGHUP at the prompt keep the session and the history, and kill as usual") {
    for (const int signal : {SIGTERM, SIGHUP}) {
        CAPTURE(signal);
        const Home home;
        Pty t(home.chat({"-n", "4"}));
        say_hello(t);
        t.type("half a line");
        REQUIRE(t.wait_for("half a line"));
        t.signal(signal);
        CHECK(t.wait_end() == 128 + signal);
        CHECK(t.restored());
        CHECK(home.kept() == "2 messages");
        CHECK(fs::exists(home.dir / "nibble/history"));
    }
}

TEST_CASE("chat: SIGTERM in an answer keeps what came of it, on a terminal and from a pipe") {
    const std::vector<std::string> long_answer = {"-c", "400", "--batch", "1", "--samplers", "temperature"};
    {
        const Home home;
        Pty t(home.chat(long_answer));
        REQUIRE(t.wait_for(prompt));
        t.type("Tell me a story" + enter);
        REQUIRE(t.wait_for("\n"));
        REQUIRE(t.wait_for(" "));  // of the answer
        t.signal(SIGTERM);
        CHECK(t.wait_end() == 128 + SIGTERM);
        CHECK(t.restored());
        CHECK(home.kept() == "2 messages");
    }
    const Home home;
    // The input stays open: it is the signal that ends it.
    const std::string in = (home.dir / "in").string(), out = (home.dir / "out").string();
    const ProcessResult r = shell(
        cat("mkfifo ", in, "; exec 3<>", in, "; echo Hello >&3; \"$0\" chat -n 4 --no-history --session ",
            home.session, " <", in, " >", out, " & p=$!; n=0; while [ $n -lt 300 ] && [ ! -s ", out,
            " ]; do n=$((n + 1)); sleep 0.1; done; kill -TERM $p; wait $p; echo \" $?\""));
    CHECK(r.out.find(" 143") != std::string::npos);
    CHECK(home.kept() == "2 messages");
}

TEST_CASE("chat: Ctrl-C ends messages that come from a file, keeps what came and kills as usual") {
    const Home home;
    std::string many;
    for (int i = 0; i < 50; ++i) many += "Tell me a story\n";
    const ProcessResult r = nibble_cli(
        {"chat", "-n", "300", "--batch", "1", "--no-history", "--session", home.session}, many, SIGINT);
    CHECK(r.code == 130);
    CHECK(!home.kept().empty());
}

TEST_CASE("chat: a session is kept when the reader of the answers leaves") {
    const Home home;
    shell(cat("printf 'Hello\\nHello\\nHello\\n' | \"$0\" chat -n 8 --no-history --session ", home.session,
              " | head -c 1 > ", (home.dir / "out").string()));
    CHECK(home.kept().ends_with(" messages"));
}

TEST_CASE("chat: two at a time keep the lines and the conversations of both") {
    const Home home;
    const auto args = home.chat({"-n", "4"});
    Pty first(args), second(args);
    say_hello(first);
    say_hello(second);
    second.type("Hello again" + enter);
    REQUIRE(second.wait_for("[4 tokens"));
    REQUIRE(second.wait_for(prompt));
    second.type("/exit" + enter);
    CHECK(second.wait_end() == 0);
    first.type("/sys" + enter);
    REQUIRE(first.wait_for(prompt));
    first.type("/exit" + enter);
    CHECK(first.wait_for(cat("this one is kept in ", home.session, ".2")));
    CHECK(first.wait_end() == 0);
    CHECK(home.kept() == "4 messages");  // whoever said nothing leaves it alone
    CHECK(!fs::exists(home.session + ".3"));
    CHECK(Home::kept(home.session + ".2") == "2 messages");
    const std::string history = *read_text_file(home.dir / "nibble/history");
    for (const std::string line : {"Hello\n", "again", "/sys"}) {
        CAPTURE(line);
        CHECK(history.find(line) != std::string::npos);
    }
}

TEST_CASE("chat: two that are ended at the same time keep both conversations") {
    const Home home;
    const auto args = home.chat({"-n", "4", "--no-history"});
    Pty first(args), second(args);
    say_hello(first);
    say_hello(second);
    first.signal(SIGTERM);
    second.signal(SIGTERM);
    CHECK(first.wait_end() == 128 + SIGTERM);
    CHECK(second.wait_end() == 128 + SIGTERM);
    CHECK(home.kept() == "2 messages");
    CHECK(Home::kept(home.session + ".2") == "2 messages");
}

TEST_CASE("chat: who adds nothing to a session leaves its file alone, whatever others do") {
    const Home home;
    CHECK(nibble_cli({"chat", "-n", "4", "--no-history", "--session", home.session}, "Hello\n").code == 0);
    const auto args = home.chat({"-n", "4", "--no-history"});
    Pty silent(args), talking(args);
    REQUIRE(silent.wait_for(prompt));
    REQUIRE(talking.wait_for(prompt));
    CHECK(home.kept() == "2 messages");  // a third that says nothing
    talking.type("/undo" + enter);
    say_hello(talking);
    talking.type("/exit" + enter);
    CHECK(talking.wait_end() == 0);
    silent.type("/exit" + enter);
    CHECK(silent.wait_end() == 0);
    CHECK(!fs::exists(home.session + ".2"));
}

TEST_CASE(
    "chat: a stopped job that is killed ends, keeps its session and leaves the shell's terminal alone") {
    const std::string bash = "/bin/bash";
    if (!fs::exists(bash)) {
        MESSAGE("no /bin/bash here: stopped jobs are not tested");
        return;
    }
    const Home home;
    Pty t({bash, "--norc", "--noprofile", "-i"});
    t.type("bind 'set enable-bracketed-paste off'; PS1='shell: '\n");
    REQUIRE(t.wait_for("shell: "));
    t.type(cat(NIBBLE_BINARY, " chat -n 4 --seed 1 --session ", home.session, "\n"));
    say_hello(t);
    t.type("\x1a");
    REQUIRE(t.wait_for("Stopped"));
    REQUIRE(t.wait_for("shell: "));
    t.type("kill %1; while jobs %1 > /dev/null 2>&1; do sleep 0.1; done; echo \"it is\" gone\n");
    CHECK(t.wait_for("it is gone"));
    CHECK(home.kept() == "2 messages");
}
