// Command lines with a slip: mistyped words, empty values, closed standard files, destinations that are none.
#include <sys/stat.h>

#include "ggml/base/mapped_file.h"
#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;

namespace {

const std::string model = (root / "models/fairytale-int8.gguf").string(),
                  checkpoint = (root / "models/fairytale").string();

}  // namespace

TEST_CASE("a mistyped command or option is named first, with the one that was probably meant") {
    const auto refused = [](std::vector<std::string> args, std::string_view says) {
        check_refused(nibble_cli(std::move(args)), 2, says);
    };
    refused({"chta"}, "chta: is not a command (did you mean chat? see `nibble --help`)");
    refused({"--vers"}, "--vers: is not an option here, did you mean --version?");
    refused({"run", "--josn", "hi"}, "--josn: is not an option here, did you mean --json?");
    refused({"run", "--temprature", "1"}, "did you mean --temp?");
    refused({"run", "--json-shema=x"}, "--json-shema: is not an option here, did you mean --json-schema?");
    refused({"run", "--zzzzzzzz"}, "--zzzzzzzz: is not an option here (see `nibble run --help`)");
    // Before what is missing without it, and before what stands around it.
    refused({"quantize", "a", "b", "--typ", "int4"}, "--typ: is not an option here, did you mean --type?");
    refused({"quantize", "--type", "int4", "a", "b", "c", "d"}, "nibble: c: is not expected here");
    refused({"quantize", "--", "a", "--type"}, "--type is required");
}

TEST_CASE("numbers are refused with their range or as no numbers") {
    for (const char* n : {"-5", "99999999999999999999"})
        check_refused(nibble_cli({"run", "-p", "x", "-n", n}), 2,
                      cat("--n-predict: Value ", n, " not in range -1 to 1099511627776"));
    for (const char* n : {"abc", "1e3", "0x10", "", "5 "})
        check_refused(nibble_cli({"run", "-p", "x", "-n", n}), 2,
                      cat("--n-predict: '", n, "' is not a decimal integer from -1 to 1099511627776"));
    const auto seed = [](const char* n) {
        return nibble_cli({"bench", "--shape", "qwen3-0.6b", "--weights-seed", n});
    };
    const std::string range = "from 0 to 18446744073709551615 (see `nibble bench --help`)";
    for (const char* n : {"abc", "-1"})
        check_refused(seed(n), 2, cat("--weights-seed: '", n, "' is not a decimal integer ", range));
    check_refused(seed("18446744073709551616"), 2, "Value 18446744073709551616 not in range 0 to");
    check_refused(nibble_cli({"bench", "-p", "4,0x8"}), 2, "'0x8' is not a decimal integer");
}

TEST_CASE("an option at the end of the command line needs its value") {
    check_refused(nibble_cli({"run", "hi", "-n"}), 2,
                  "nibble: --n-predict: needs a value (see `nibble run --help`)");
    for (const char* flag : {"--top-k", "--logit-bias", "--stop", "--model"})
        check_refused(nibble_cli({"run", flag}), 2, cat("nibble: ", flag, ": needs a value ("));
}

TEST_CASE("--name= is an empty value and does not take the next word") {
    CHECK(nibble_cli({"run", "--raw", "--echo", "-n", "0", "--logit-bias=", "-q", "Hi"}).out == "Hi");
    CHECK(nibble_cli({"run", "--raw", "--echo", "-n", "0", "-q", "--", "--system="}).out == "--system=");
    CHECK(nibble_cli({"run", "--raw", "--echo", "-n", "0", "-q", "-p", "--seed="}).out == "--seed=");
    check_refused(nibble_cli({"run", "--prompt=", "-q"}), 2, "prompt: is missing");
    const Scratch s;
    const std::string config = s.file("c.toml", "system = \"\"\n");
    const ProcessResult r = shell(cat("NIBBLE_CONFIG=", config, " \"$0\" run -q -n 0 Hi < /dev/null"));
    CHECK(r.code == 0);
    CHECK(r.err.empty());
    const ProcessResult unset =
        shell("NIBBLE_CTX= \"$0\" run -q -n 0 Hi < /dev/null");  // as if it were not set
    CHECK(unset.code == 0);
    CHECK(unset.err.empty());
}

TEST_CASE("~/ in a setting that is a path is the home folder") {
    const Scratch s;
    const std::string config = s.file("c.toml", "model = \"~/m.gguf\"\n");
    fs::create_symlink(model, s.dir / "m.gguf");
    const ProcessResult r =
        shell(cat("HOME=", s.dir.string(), " NIBBLE_CONFIG=", config, " \"$0\" run -q -n 0 Hi < /dev/null"));
    CHECK(r.code == 0);
    CHECK(r.err.empty());
}

TEST_CASE("messages never reach a file that is written, also when standard files are closed") {
    const Scratch s;
    const auto convert = [&](const std::string& name, const std::string& streams) {
        const fs::path to = s.dir / name;
        shell(cat("\"$0\" quantize ", model, " ", to.string(), " --type int4 --no-search ", streams));
        const auto bytes = read_text_file(to);
        return bytes ? *bytes : "none";
    };
    const std::string expected = convert("a", "");
    REQUIRE(expected.starts_with("GGUF"));
    CHECK(convert("b", "2>&-") == expected);
    CHECK(convert("c", ">&-") == expected);
    CHECK(convert("d", "<&- >&- 2>&-") == expected);
    CHECK(shell("\"$0\" tokenize hi >&-").code == 1);
}

TEST_CASE("output that was lost is an error of every command, however it was written") {
    for (const char* command :
         {"--help", "--version", "run --help-all", "completion bash", "completion man",
          "bench -p 4 -n 4 -r 1", "chat -n 2", "run -p Hi -n 200 --json --logprobs 20"}) {
        INFO(command);
        const ProcessResult r = shell(cat("echo Hi | \"$0\" ", command, " > /dev/full"));
        CHECK(r.code == 1);
        CHECK(r.err.find("stdout: cannot be written") != std::string::npos);
    }
}

TEST_CASE("a destination that is no file is refused before the work, also with --force") {
    const Scratch s;
    const fs::path pipe = s.dir / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    const std::string text = (root / "tests/data/alice.txt").string();
    for (const auto& [to, says] :
         {std::pair{pipe.string(), "is a device or pipe"}, std::pair{s.dir.string(), "is a folder"}}) {
        check_refused(nibble_cli({"quantize", checkpoint, to, "--type", "int4"}), 2, says);
        check_refused(nibble_cli({"quantize", checkpoint, to, "--type", "int4", "--force"}), 2, says);
        check_refused(nibble_cli({"synth", "--shape", "qwen3-0.6b", "--layers", "1", "-o", to}), 2, says);
        check_refused(nibble_cli({"calibrate", "-f", text, "-o", to}), 2, says);
    }
    CHECK(fs::is_fifo(pipe));
    check_refused(nibble_cli({"calibrate", "-f", "/nonexistent", "-o", "/nonexistent/x"}), 1,
                  "create it first");
}

TEST_CASE("inspect --json without --system is refused instead of ignored") {
    check_refused(nibble_cli({"inspect", "--json", model}), 2, "--json requires --system");
    CHECK(nibble_cli({"inspect", "--json", "--system"}).out.starts_with("{"));
    const ProcessResult r = shell(cat("NIBBLE_JSON=true \"$0\" inspect ", model));
    CHECK(r.code == 0);
}
