// Standard input and output of every kind: slow and silent pipes, sockets, files read in part, both outputs
// in one file, a full disk.
#include <sys/socket.h>

#include "ggml/base/mapped_file.h"
#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;

TEST_CASE("run: a pipe that stays silent is waited for, with a note; what comes late still counts") {
    const std::string args = "--raw -p Sum -n 0 --echo -q";
    const ProcessResult slow = shell("{ sleep 2.5; echo late; } | \"$0\" run " + args);
    CHECK(slow.out == "Sum\n\nlate");
    CHECK(slow.err.find("waiting for standard input") != std::string::npos);
    CHECK(shell("\"$0\" run " + args + " < /dev/null").out == "Sum");
    const ProcessResult quick = shell("echo now | \"$0\" run " + args);
    CHECK(quick.out == "Sum\n\nnow");
    CHECK(quick.err.empty());
}

TEST_CASE("run: a socket as standard input, and the rest of a file whose beginning somebody else read") {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    REQUIRE(::write(ends[1], "by socket", 9) == 9);
    ::close(ends[1]);
    const int saved = ::dup(0);
    ::dup2(ends[0], 0);  // for a shell that leaves its child's input alone
    const Scratch s;
    const std::string out = (s.dir / "out").string();
    const std::string command = cat(NIBBLE_BINARY, " run --raw -n 0 --echo -q > ", out);
    CHECK(std::system(command.c_str()) == 0);
    ::dup2(saved, 0);
    for (const int fd : {saved, ends[0]}) ::close(fd);
    CHECK(*read_text_file(out) == "by socket");
    const std::string two = s.file("two", "one\ntwo\n");
    CHECK(shell("{ read x; \"$0\" run --raw -n 0 --echo -q; } < " + two).out == "two");
    CHECK(shell("{ read x; \"$0\" tokenize --ids; } < " + two).out ==
          nibble_cli({"tokenize", "--ids", "two\n"}).out);
}

TEST_CASE("run: the text is all there is on stdout; where statistics follow in the same file, a line ends") {
    const Scratch s;
    const std::string out = (s.dir / "out").string(), args = " run -p Hi -n 5 --seed 1 < /dev/null > " + out;
    const std::string text = nibble_cli({"run", "-p", "Hi", "-n", "5", "--seed", "1"}).out;
    REQUIRE(!text.ends_with('\n'));
    CHECK(shell("\"$0\"" + args).err.starts_with("prompt "));
    CHECK(*read_text_file(out) == text);
    CHECK(shell("\"$0\"" + args + " 2>&1").code == 0);
    CHECK(read_text_file(out)->starts_with(text + "\nprompt "));
}

TEST_CASE("a disk that is full is an error, a reader that leaves is not") {
    for (const char* command : {"run -p Hi -n 5", "run -p Hi -n 5 --json", "tokenize hi", "models"}) {
        INFO(command);
        const ProcessResult r = shell(cat("\"$0\" ", command, " > /dev/full < /dev/null"));
        CHECK(r.code == 1);
        CHECK(r.err.find("stdout: cannot be written") != std::string::npos);
    }
    const Scratch s;
    const ProcessResult limited =
        shell(cat("ulimit -f 100; \"$0\" quantize fairytale --type int8 ", (s.dir / "q.gguf").string()));
    CHECK(limited.code == 1);
    CHECK(limited.err.find("q.gguf: cannot write") != std::string::npos);
    const ProcessResult r = shell("\"$0\" run -p Hi -n 200 --ignore-eos -q < /dev/null | head -c 10");
    CHECK(r.out.size() == 10);
    CHECK(r.err.empty());
}

TEST_CASE("usage errors name the option as it was written and the command's own help") {
    check_refused(nibble_cli({"run", "--nosuch"}), 2,
                  "--nosuch: is not an option here (see `nibble run --help`)");
    check_refused(nibble_cli({"chat", "hello"}), 2, "hello: is not expected here (see `nibble chat --help`)");
    check_refused(nibble_cli({"run", "-p", "x", "--temp", "hot"}), 2, "--temp: 'hot' is not allowed");
    check_refused(nibble_cli({"run", "-p", "x", "--ctx", "0"}), 2, "`nibble run --help`");
    check_refused(nibble_cli({}), 2, "a command is missing");
}
