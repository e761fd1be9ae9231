// Options that would be without effect are refused: flags that a command does not obey, that another one
// rules out, that are empty, or numbers that are none.
#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;

namespace {

void refused(std::vector<std::string> args, std::string_view says) {
    INFO("args: " << args[0] << " " << args[1]);
    check_refused(nibble_cli(std::move(args)), 2, says);
}

}  // namespace

TEST_CASE("a command has only the flags that it obeys") {
    refused({"bench", "--ctx", "100"}, "--ctx: is not an option here");
    refused({"bench", "--check-nan"}, "--check-nan: is not an option here");
    refused({"bench", "--shape", "qwen3-0.6b", "--n-ctx", "100"}, "--n-ctx: is not an option here");
    refused({"plan", "--check-nan"}, "--check-nan: is not an option here");
    refused({"plan", "--shape", "qwen3-0.6b", "--weights-seed", "2"}, "--weights-seed: is not");
    for (const char* command : {"perplexity", "calibrate"}) {
        refused({command, "-f", "x", "--batch", "7"}, "--batch: is not an option here");
        refused({command, "-f", "x", "--check-nan"}, "--check-nan: is not an option here");
        CHECK(nibble_cli({command, "--help"}).out.find("tokens of a window [512]") != std::string::npos);
    }
}

TEST_CASE("flags that another one leaves without effect are refused beside it, or without it") {
    for (const char* command : {"bench", "plan"}) {
        refused({command, "-m", "x", "--shape", "qwen3-0.6b"}, "--model excludes --shape");
        refused({command, "--layers", "2"}, "--layers requires --shape");
        refused({command, "--type", "int4"}, "--type requires --shape");
    }
    refused({"run", "--raw", "--template", "chatml", "x"}, "--raw excludes --template");
    refused({"run", "--special", "--template", "chatml", "x"}, "--template excludes --special");
    refused({"run", "--special", "--chat", "x"}, "--chat excludes --special");
    refused({"run", "--parallel", "2", "x"}, "--parallel requires --prompts");
    refused({"run", "--logprobs", "2", "x"}, "add --json");
    refused({"inspect", "a", "-m", "b"}, "model excludes --model");
    refused({"inspect", "a", "--system"}, "model excludes --system");
    refused({"inspect", "--template", "--no-tensors"}, "--tensors excludes --template");
    refused({"models", "--json", "--names"}, "--json excludes --names");
    refused({"tokenize", "--detokenize", "--bos", "3"}, "--detokenize excludes --bos");
    refused({"template", "-m", "a", "--template", "chatml", "--conversation", "b"}, "--model excludes");
    refused({"quantize", "a", "b", "--type", "int4", "--importance", "c", "--no-search"}, "--no-search");
}

TEST_CASE("settings give way to what rules them out, and go with what they belong to") {
    const Scratch s;
    const std::string model = (root / "models/fairytale-int8.gguf").string();
    const auto with = [&](const std::string& config, const std::string& words) {
        return shell(cat("NIBBLE_CONFIG=", s.file("c.toml", config), " NIBBLE_MODEL=/nowhere \"$0\" ", words,
                         " < /dev/null"));
    };
    CHECK(with("", cat("inspect ", model)).code == 0);
    CHECK(with("", "inspect --system --json").code == 0);
    const std::string shape = "plan --shape llama-3.2-1b --json";
    CHECK(with("", shape).code == 0);
    // Whichever comes first in the file.
    const std::string both = "[plan]\nlayers = 1\nshape = \"llama-3.2-1b\"\n";
    const ProcessResult plan =
        shell(cat("NIBBLE_CONFIG=", s.file("c.toml", both), " \"$0\" plan --json < /dev/null"));
    CHECK(plan.out.find("\"n_layers\": 1,") != std::string::npos);
    CHECK(shell(cat("NIBBLE_CONFIG=", s.file("c.toml", "layers = 1\n"), " \"$0\" plan --json < /dev/null"))
              .code == 0);
}

TEST_CASE("an empty name of a model, file or type is refused: it is no wish for the default") {
    for (const char* command : {"run", "chat", "bench", "plan", "inspect", "tokenize"}) {
        refused({command, "-m", ""}, "nibble: --model: is empty (an unset variable?");
        refused({command, "--model="}, "--model: is empty");
    }
    refused({"inspect", ""}, "model: is empty");
    refused({"bench", "--shape", ""}, "--shape: is empty");
    refused({"run", "-f", "", "x"}, "--file: is empty");
    refused({"run", "--kv-type", "", "x"}, "--kv-type: is empty");
    refused({"run", "--isa", "", "x"}, "--isa: is empty");
    CHECK(nibble_cli({"run", "-m", "", "-m", "fairytale-int8", "-n", "0", "-q", "x"}).code == 0);
}

TEST_CASE("not a number and infinity are refused with the flag and its range") {
    for (const char* n : {"nan", "-nan", "inf", "-inf", "10.5", "x"})
        refused({"run", "--beams", "2", "--length-penalty", n, "x"},
                cat("--length-penalty: Value ", n, " not in range 0 to 10"));
    for (const char* flag : {"--temp", "--top-p", "--min-p", "--repeat-penalty", "--dry-base"})
        for (const char* n : {"nan", "inf"}) {
            refused({"run", flag, n, "x"}, cat("nibble: ", flag, ": '", n, "' is not allowed"));
            refused({"run", flag, n, "x"}, "a number from");
        }
}
