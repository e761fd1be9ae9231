// Names that files bring along or are given: terminal escapes and bytes that are no UTF-8, in messages and in
// JSON.
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;

namespace {

const std::string checkpoint = (root / "models/fairytale").string();

std::string bundled() { return *read_text_file(root / "models/fairytale-int8.gguf"); }

// The bundled model with the first of these bytes replaced by as many others.
std::string changed(std::string_view from, std::string_view to) {
    std::string bytes = bundled();
    const size_t at = bytes.find(from);
    REQUIRE(at != std::string::npos);
    REQUIRE(from.size() == to.size());
    return bytes.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a file that does not say how text is split is told of") {
    const Scratch s;
    std::string bytes = bundled();
    const std::string key = "tokenizer.ggml.pre";
    const size_t at = bytes.find(key);
    REQUIRE(at != std::string::npos);
    bytes.replace(at, key.size(), "tokenizer.ggml.prx");
    const ProcessResult r = nibble_cli({"run", "-m", s.file("old.gguf", bytes), "-q", "-n", "1", "Hi"});
    CHECK(r.code == 0);
    CHECK(r.err.find(key) != std::string::npos);
    CHECK(nibble_cli({"run", "-q", "-n", "1", "Hi"}).err.empty());
}

TEST_CASE("escape sequences in a model file do not reach the terminal") {
    const Scratch s;
    const std::string architecture = s.file("a.gguf", changed("llama", "l\x1b[2m")),
                      tensor = s.file("t.gguf", changed("blk.5.attn_v.weight", "blk.5.\x1b[31mt.weight")),
                      tokenizer = s.file("v.gguf", changed("gpt2", "\x1b[2m")),
                      key = s.file("k.gguf", changed("general.name", "general.\x1b[2m")),
                      folder = "NIBBLE_MODEL_FOLDERS=" + s.dir.string() + " ";
    const auto quiet = [](const ProcessResult& r) {
        INFO(r.out << r.err);
        CHECK((r.out + r.err).find('\x1b') == std::string::npos);
        CHECK((r.out + r.err).find("\\x1b[") != std::string::npos);
    };
    quiet(nibble_cli({"run", "-m", architecture, "-p", "x"}));
    quiet(nibble_cli({"run", "-m", tokenizer, "-p", "x"}));
    quiet(nibble_cli({"inspect", tensor}));
    quiet(nibble_cli({"inspect", key}));
    quiet(nibble_cli({"quantize", tensor, "--type", "int4", "--dry-run"}));
    quiet(shell(folder + "\"$0\" models"));
}

TEST_CASE("JSON is valid, and nothing crashes, when a file's name is no UTF-8") {
    const Scratch s;
    const std::string model = s.file("m\xff.gguf", bundled()), to = (s.dir / "o\xfe.gguf").string(),
                      alice = (root / "tests/data/alice.txt").string();
    const auto parses = [](const std::vector<std::string>& args) {
        const ProcessResult r = nibble_cli(args);
        INFO(args[0] << ": " << r.err);
        CHECK(r.code == 0);
        CHECK(nlohmann::json::accept(r.out));
    };
    parses({"bench", "--json", "-m", model, "-p", "2", "-n", "2", "-r", "1"});
    parses({"plan", "--json", "-m", model});
    parses({"perplexity", "--json", "-m", model, "-f", alice, "--windows", "1", "--ctx", "32"});
    parses({"run", "--json", "-m", model, "-p", "x", "-n", "1"});
    parses({"quantize", checkpoint, to, "--type", "int4", "--no-search", "--json"});
    const ProcessResult list = shell("NIBBLE_MODEL_FOLDERS=" + s.dir.string() + " \"$0\" models --json");
    CHECK(list.code == 0);
    CHECK(nlohmann::json::accept(list.out));
}
