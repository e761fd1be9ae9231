// Completion scripts and the manual: bash's is run in bash, the others are checked by their shells where
// these are installed.
#include <cstdlib>

#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;

namespace {

std::string script(const char* shell) {
    const ProcessResult r = nibble_cli({"completion", shell});
    CHECK(r.code == 0);
    CHECK(r.err.empty());
    return r.out;
}

// What bash offers for the last of the words.
std::string offered(const std::string& file, const std::vector<std::string>& words) {
    std::string line = cat("PATH=", fs::path(NIBBLE_BINARY).parent_path().string(), ":$PATH; source ", file,
                           "; COMP_WORDS=(");
    for (const std::string& w : words) line += cat("'", w, "' ");
    line += cat("); COMP_CWORD=", words.size() - 1, "; _nibble; printf '%s\\n' \"${COMPREPLY[@]}\"");
    const ProcessResult r = run_process({"/bin/bash", "-c", line});
    CHECK(r.err.empty());
    return "\n" + r.out;
}

}  // namespace

TEST_CASE("completion bash: commands, options, choices, models, templates, files") {
    const Scratch s;
    const std::string file = s.file("nibble.bash", script("bash"));
    CHECK(offered(file, {"nibble", "ru"}) == "\nrun\n");
    CHECK(offered(file, {"nibble", ""}).find("\nquantize\n") != std::string::npos);
    CHECK(offered(file, {"nibble", "run", "--top"}) == "\n--top-k\n--top-p\n--top-n-sigma\n");
    CHECK(offered(file, {"nibble", "chat", "--context-overflow", "s"}) == "\nstop\nshift\n");
    CHECK(offered(file, {"nibble", "chat", "--context-overflow", "=", "d"}) == "\ndrop\n");
    CHECK(offered(file, {"nibble", "run", "-m", "fairytale-i"}) == "\nfairytale-int8\n");
    CHECK(offered(file, {"nibble", "inspect", "fairytale-i"}) == "\nfairytale-int8\n");
    CHECK(offered(file, {"nibble", "run", "--template", "chat"}) == "\nchatml\n");
    CHECK(offered(file, {"nibble", "run", "-f", (s.dir / "nib").string()}) == cat("\n", file, "\n"));
    CHECK(offered(file, {"nibble", "run", "--temp", ""}) == "\n\n");
    CHECK(offered(file, {"nibble", "completion", "z"}) == "\nzsh\n");
    CHECK(offered(file, {"nibble", "nosuch", "-"}) == "\n\n");
    // Names of models are names, whatever the shell would make of them.
    const fs::path models = s.dir / "models";
    fs::create_directory(models);
    for (const char* name : {"my $(touch ran) it's.gguf", "my `touch ran`.gguf", "*.gguf"})
        fs::create_symlink(root / "models/fairytale-int8.gguf", models / name);
    ::setenv("NIBBLE_MODEL_FOLDERS", models.c_str(), 1);
    CHECK(offered(file, {"nibble", "run", "-m", "my"}) == "\nmy $(touch ran) it's\nmy `touch ran`\n");
    CHECK(offered(file, {"nibble", "inspect", "*"}) == "\n*\n");
    ::unsetenv("NIBBLE_MODEL_FOLDERS");
    CHECK(!fs::exists("ran"));
}

TEST_CASE("completion zsh and fish: the shell itself accepts the script") {
    const Scratch s;
    for (const char* shell : {"zsh", "fish"}) {
        const std::string text = script(shell), file = s.file(shell, text);
        CHECK(text.find("context-overflow") != std::string::npos);
        CHECK(text.find("nibble models --names") != std::string::npos);
        const fs::path program = fs::path("/usr/bin") / shell;
        if (!fs::exists(program)) {
            MESSAGE(shell << " is not installed: the syntax of its script is not checked");
            continue;
        }
        const ProcessResult r = run_process({program, "-n", file});
        CHECK(r.code == 0);
        CHECK(r.err.empty());
    }
    check_refused(nibble_cli({"completion", "tcsh"}), 2, "tcsh");
}

TEST_CASE("completion man: every option of every command, and nothing that roff takes for a request") {
    const std::string page = script("man");
    CHECK(page.starts_with(".TH NIBBLE 1"));
    for (const char* text :
         {".SH NIBBLE quantize\n", "\\fB\\-\\-dry\\-base\\fR", ".SH EXIT STATUS", "[1.75]"})
        CHECK(page.find(text) != std::string::npos);
    for (size_t at = page.find("\n."); at != std::string::npos; at = page.find("\n.", at + 1)) {
        const std::string request = page.substr(at + 1, page.find_first_of(" \n", at + 1) - at - 1);
        CHECK((request == ".SH" || request == ".SS" || request == ".TP" || request == ".B" ||
               request == ".nf" || request == ".fi"));
    }
}
