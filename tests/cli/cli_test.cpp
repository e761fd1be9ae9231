// The binary as users and scripts meet it: pipes, exit codes, messages, hostile files.
// Nothing here looks inside; what is checked is what can be seen.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;
namespace fs = std::filesystem;

namespace {

const std::string checkpoint = (root / "models/fairytale").string();

}  // namespace

TEST_CASE("run: the golden greedy text from -p, -f and stdin, from the folder and from the bundled file") {
    const auto golden = nlohmann::json::parse(*read_text_file(root / "tests/golden/fairytale.json"));
    const std::string prompt = golden["prompts"][1]["text"];
    std::string ids;
    for (const auto& t : golden["prompts"][1]["greedy_40"]) ids += cat(t.get<int>(), " ");
    const ProcessResult expected = nibble_cli({"tokenize", "--detokenize", ids});
    REQUIRE(expected.code == 0);
    const std::vector<std::string> flags = {"--temp", "0",        "-n",        "40",          "-q",
                                            "-m",     checkpoint, "--special", "--ignore-eos"};
    const auto with = [&](std::vector<std::string> more) {
        std::vector<std::string> args = {"run"};
        args.insert(args.end(), flags.begin(), flags.end());
        args.insert(args.end(), more.begin(), more.end());
        return args;
    };
    const Scratch scratch;
    for (const ProcessResult& r : {nibble_cli(with({"-p", prompt})), nibble_cli(with({}), prompt),
                                   nibble_cli(with({"-f", scratch.file("p", prompt)}))}) {
        CHECK(r.code == 0);
        CHECK(r.err.empty());
        // Control tokens have no text in an answer.
        std::string shown = expected.out;
        for (const std::string_view control : {"<|im_end|>", "<|im_start|>"})
            for (size_t at; (at = shown.find(control)) != std::string::npos;) shown.erase(at, control.size());
        CHECK(r.out == shown);
    }
    const ProcessResult bundled = nibble_cli({"run", "-p", prompt, "-n", "5", "--temp", "0"});
    CHECK(bundled.code == 0);
    CHECK(!bundled.out.empty());
    CHECK(bundled.err.find("tokens/s") != std::string::npos);
}

TEST_CASE("run: a seed reproduces a text with any number of threads and any chunk size") {
    const auto text = [](std::vector<std::string> more) {
        std::vector<std::string> args = {
            "run", "--raw", "-p", "The King said to his daughter, who was", "-n", "60", "-q", "--seed", "7"};
        args.insert(args.end(), more.begin(), more.end());
        const ProcessResult r = nibble_cli(args);
        CHECK(r.code == 0);
        return r.out;
    };
    const std::string once = text({"--threads", "1"});
    CHECK(once.size() > 20);
    CHECK(text({"--threads", "2"}) == once);
    CHECK(text({"--threads", "4", "--batch", "1"}) == once);
    CHECK(text({"--batch", "7"}) == once);
    CHECK(text({"--seed", "8"}) != once);
}

TEST_CASE("run: stop strings, length, full context") {
    const std::vector<std::string> greedy = {"run",    "--raw", "-q", "-p", "Once upon a time",
                                             "--temp", "0",     "-n", "30"};
    const std::string full = nibble_cli(greedy).out;
    REQUIRE(full.size() > 20);
    const std::string stop = full.substr(10, 4);
    auto args = greedy;
    args.insert(args.end(), {"--stop", stop});
    CHECK(nibble_cli(args).out == full.substr(0, full.find(stop)));

    const ProcessResult context =
        nibble_cli({"run", "--raw", "-q", "-p", "Once upon a time", "--ctx", "12", "--ignore-eos"});
    CHECK(context.code == 0);
    CHECK(context.err.find("context of 12 tokens is full") != std::string::npos);
    CHECK(nibble_cli({"run", "-p", "x", "-n", "0", "-q"}).out.empty());
    check_refused(nibble_cli({"run", "-p", "x", "--stop", ""}), 2, "--stop");
}

TEST_CASE("run: invalid UTF-8 in the prompt is kept as bytes") {
    const ProcessResult r = nibble_cli({"run", "-n", "3", "-q", "--temp", "0"}, "abc \xff\xfe\x80 xyz");
    CHECK(r.code == 0);
    const ProcessResult ids = nibble_cli({"tokenize", "--ids"}, "abc \xff\xfe\x80 xyz");
    CHECK(nibble_cli({"tokenize", "--detokenize"}, ids.out).out == "abc \xff\xfe\x80 xyz");
}

TEST_CASE("run: Ctrl-C flushes what was generated and exits with 130") {
    const ProcessResult r = nibble_cli(
        {"run", "-p", "Once upon a time", "--ignore-eos", "--ctx", "512", "--batch", "1"}, {}, SIGINT);
    CHECK(r.code == 130);
    CHECK(!r.out.empty());
}

TEST_CASE("bad command lines exit with 2 and one line") {
    check_refused(nibble_cli({"run", "-p", "x", "-n", "-5"}), 2, "-n");
    check_refused(nibble_cli({"run", "-p", "x", "--temp", "nan"}), 2, "temp");
    check_refused(nibble_cli({"run", "-p", "x", "--top-p", "1.5"}), 2, "top");
    check_refused(nibble_cli({"run", "-p", ""}), 2, "prompt");
    check_refused(nibble_cli({"run", "-p", "x", "--ctx", "0"}), 2, "--ctx");
    check_refused(nibble_cli({"run", "-p", "x", "--kv-type", "q9"}), 2, "q9");
    check_refused(nibble_cli({"run", "-p", "x", "--isa", "z80"}), 2, "z80");
    check_refused(nibble_cli({"run", "-p", "Once upon a time there was a king", "--ctx", "4"}), 2, "4");
    check_refused(nibble_cli({"walk"}), 2, "walk");
    check_refused(nibble_cli({"tokenize", "--detokenize", "99999999"}), 2, "99999999");
}

TEST_CASE("bad models exit with 1 and one line") {
    const Scratch s;
    const auto run = [&](const std::string& model) { return nibble_cli({"run", "-p", "x", "-m", model}); };
    check_refused(run("/nonexistent.gguf"), 1, "/nonexistent.gguf");
    check_refused(run(s.dir.string()), 1, s.dir.string());
    check_refused(run(s.file("text.gguf", "this is not a model")), 1, "text.gguf");
    check_refused(run(s.file("empty.gguf", "")), 1, "empty.gguf");
    const std::string whole = *read_text_file(root / "models/fairytale-int8.gguf");
    for (const size_t n : {size_t{10}, size_t{5000}, whole.size() / 2, whole.size() - 1})
        check_refused(run(s.file("cut.gguf", whole.substr(0, n))), 1, "cut.gguf");

    // A folder whose tensors disagree with its config, and one of an unknown architecture.
    const auto folder = [&](std::string_view name, std::string_view from, std::string_view to) {
        const fs::path dir = s.dir / name;
        fs::create_directories(dir);
        for (const auto& f : fs::directory_iterator(checkpoint))
            fs::create_symlink(f.path(), dir / f.path().filename());
        std::string config = *read_text_file(fs::path(checkpoint) / "config.json");
        const size_t at = config.find(from);
        REQUIRE(at != std::string::npos);
        config.replace(at, from.size(), to);
        fs::remove(dir / "config.json");
        std::ofstream(dir / "config.json") << config;
        return dir.string();
    };
    check_refused(run(folder("shape", "\"hidden_size\": 256", "\"hidden_size\": 128")), 1, "x 256");
    check_refused(run(folder("arch", "\"model_type\": \"llama\"", "\"model_type\": \"lemma\"")), 1, "lemma");
    check_refused(run(folder("act", "\"silu\"", "\"gelu\"")), 1, "hidden_act");
    check_refused(run(folder("layers", "\"num_hidden_layers\": 6", "\"num_hidden_layers\": 7")), 1, "blk.6");
    check_refused(run(folder("fewer", "\"num_hidden_layers\": 6", "\"num_hidden_layers\": 5")), 1, "blk.5");
    check_refused(run(folder("heads", "\"num_attention_heads\": 4", "\"num_attention_heads\": 0")), 1,
                  "heads");
    check_refused(nibble_cli({"run", "-p", "x", "--ctx", "2147483647"}), 2, "--ctx");
    check_refused(nibble_cli({"run", "-p", "x", "--ctx", "1000000000"}), 1, "would fit");
    check_refused(nibble_cli({"run", "-p", "x", "--ctx", "100000000"}), 1, "MiB");
}

TEST_CASE("tokenize: ids on one line, pieces, and back; a vocabulary is enough") {
    CHECK(nibble_cli({"tokenize", "--ids", "Once upon a time"}).out == "2139 674 258 512\n");
    const ProcessResult pieces = nibble_cli({"tokenize", "Once upon a time"});
    CHECK(pieces.out.starts_with("2139\tOnce\n674\t upon\n"));
    CHECK(nibble_cli({"tokenize", "--ids", "-m", (root / "tests/data/tokenizers/gpt-2.gguf").string(),
                      "Hello world"})
              .out == "15496 995\n");
    CHECK(nibble_cli({"tokenize", "--ids", "<|im_end|>"}).out != "4090\n");
    CHECK(nibble_cli({"tokenize", "--ids", "--special", "<|im_end|>"}).out == "4090\n");
    check_refused(nibble_cli({"run", "-p", "x", "-m", (root / "tests/data/tokenizers/gpt-2.gguf").string()}),
                  1, "gpt-2.gguf");
}

TEST_CASE("inspect: the figures of the bundled model") {
    for (const std::string& m : {checkpoint, (root / "models/fairytale-int8.gguf").string()}) {
        const ProcessResult r = nibble_cli({"inspect", m});
        CHECK(r.code == 0);
        CHECK(r.out.find("parameters 5.7") != std::string::npos);
        CHECK(r.out.find("kv cache 3072 bytes per token as f16") != std::string::npos);
    }
    check_refused(nibble_cli({"inspect", "/nonexistent"}), 1, "/nonexistent");
}

TEST_CASE("quantize: writes, refuses to overwrite, plans without writing, answers in JSON") {
    const Scratch s;
    const std::string out = (s.dir / "q.gguf").string();
    const ProcessResult dry = nibble_cli({"quantize", checkpoint, "--type", "int4", "--dry-run", "--json"});
    CHECK(dry.code == 0);
    const auto plan = nlohmann::json::parse(dry.out);
    CHECK(!fs::exists(out));
    const ProcessResult made = nibble_cli({"quantize", checkpoint, out, "--type", "int4", "--json", "--keep",
                                           "attn_q=q8_0", "--output-type", "q8_0"});
    REQUIRE(made.code == 0);
    const auto report = nlohmann::json::parse(made.out);
    CHECK(report["bytes"] > plan["bytes"]);
    for (const auto& t : report["tensors"])
        if (t["name"].get<std::string>().find("attn_q.weight") != std::string::npos) CHECK(t["to"] == "q8_0");
    CHECK(nibble_cli({"run", "-m", out, "-p", "Once upon", "-n", "4", "-q"}).code == 0);
    check_refused(nibble_cli({"quantize", checkpoint, out, "--type", "int8"}), 2, "--force");
    CHECK(nibble_cli({"quantize", checkpoint, out, "--type", "nf4", "--force"}).code == 0);
    const ProcessResult again = nibble_cli({"quantize", out, out + ".2", "--type", "int8"});
    CHECK(again.code == 0);
    CHECK(again.err.find("quantized already") != std::string::npos);
    check_refused(nibble_cli({"quantize", checkpoint, out + ".3", "--type", "int5"}), 2, "int5");
    check_refused(nibble_cli({"quantize", checkpoint, "/nonexistent/x.gguf", "--type", "int8"}), 1,
                  "/nonexistent/x.gguf");
    for (const char* flag : {"--keep", "--only"})
        check_refused(nibble_cli({"quantize", checkpoint, out + ".3", "--type", "int8", flag, ""}), 2, flag);
    check_refused(nibble_cli({"quantize", checkpoint, out + ".3", "--type", "int8", "--keep", "(=f16"}), 2,
                  "(");
    const auto planned = [&](std::vector<std::string> more) {
        std::vector<std::string> args = {"quantize", checkpoint, "--type", "int8", "--dry-run"};
        args.insert(args.end(), more.begin(), more.end());
        return nibble_cli(args);
    };
    check_refused(planned({"--keep", "q_proj=f16"}), 2, "--keep: 'q_proj=f16' is the name of no matrix");
    check_refused(planned({"--only", "attn_norm=f16"}), 2,
                  "--only: 'attn_norm=f16' is the name of no matrix");
    check_refused(planned({"--only", "(=f16"}), 2, "--only: missing closing parenthesis");
    check_refused(planned({"--keep", "attn_q=q99"}), 2,
                  "'q99' is not a type that can be written (use int8, ");
    CHECK(planned({"--keep", "attn_q", "--only", "ffn_(up|down)=f16"}).code == 0);
    check_refused(planned({"--importance", "/nonexistent/w"}), 1, "/nonexistent/w");
    check_refused(planned({"--embedding-type", "f16", "--output-type", "q8_0"}), 2,
                  "--embedding-type: f16 contradicts --output-type q8_0");
    CHECK(planned({"--embedding-type", "q8_0", "--output-type", "q8_0"}).code == 0);
    CHECK(planned({"--embedding-type", "int8", "--output-type", "q8_0"}).code == 0);  // the same
    CHECK(std::distance(fs::directory_iterator(s.dir), {}) == 2);
}

TEST_CASE("perplexity and calibrate: numbers for scripts") {
    const Scratch s;
    const std::string alice = (root / "tests/data/alice.txt").string(), weights = (s.dir / "w").string();
    const ProcessResult r = nibble_cli(
        {"perplexity", "-m", checkpoint, "-f", alice, "--windows", "2", "--json", "--base", checkpoint});
    REQUIRE(r.code == 0);
    const auto j = nlohmann::json::parse(r.out);
    CHECK(j["tokens"] == 2 * 511);
    CHECK(j["perplexity"].get<double>() == j["base"]["perplexity"].get<double>());
    CHECK(j["base"]["mean_kl"] == 0.0);
    CHECK(j["base"]["top1_agreement"] == 1.0);
    CHECK(j["stderr"].get<double>() > 0);
    CHECK(nibble_cli({"calibrate", "-m", checkpoint, "-f", alice, "-o", weights, "--windows", "2"}).code ==
          0);
    const std::vector<std::string> again = {"calibrate", "-m", checkpoint, "-f",
                                            alice,       "-o", weights,    "--windows=1"};
    check_refused(nibble_cli(again), 2, "--force");
    const ProcessResult statistics = nibble_cli({"inspect", weights});  // no model, and nothing wrong with it
    CHECK(statistics.code == 0);
    CHECK(statistics.err.empty());
    const std::string text = read_text_file(alice)->substr(0, 8000);
    const ProcessResult named = nibble_cli(
        {"perplexity", "-f", "-", "--windows", "1", "--ctx", "64", "--json", "--base", "fairytale-int8"},
        text);
    CHECK(named.code == 0);
    CHECK(nlohmann::json::parse(named.out, nullptr, false).contains("base"));
    check_refused(nibble_cli({"quantize", "no-such-name", (s.dir / "q").string(), "--type", "int8"}), 1,
                  "name of a model");
    check_refused(nibble_cli({"perplexity", "-m", checkpoint, "-f", alice, "--ctx", "1"}), 2, "--ctx");
    const ProcessResult beyond = nibble_cli({"perplexity", "-f", alice, "--windows", "1", "--ctx", "600"});
    CHECK(beyond.code == 0);
    CHECK(beyond.err.find("made for 512 tokens") != std::string::npos);
    CHECK(
        nibble_cli({"quantize", checkpoint, (s.dir / "q").string(), "--type", "nf4", "--importance", weights})
            .code == 0);
    const ProcessResult nothing_to_weigh = nibble_cli(
        {"quantize", checkpoint, (s.dir / "q8").string(), "--type", "int8", "--importance", weights});
    CHECK(nothing_to_weigh.code == 0);
    CHECK(nothing_to_weigh.err.find("--importance changes nothing") != std::string::npos);
    const std::string to = (s.dir / "calibrated.gguf").string();
    const ProcessResult calibrated = nibble_cli({"quantize", checkpoint, to, "--type", "nf4", "--calibrate",
                                                 alice, "--windows", "2", "--ctx", "64", "--json"});
    CHECK(calibrated.code == 0);
    CHECK(calibrated.err.find("reading the text, 2 windows") != std::string::npos);
    const auto report = nlohmann::json::parse(calibrated.out, nullptr, false);
    REQUIRE(report.contains("tensors"));
    for (const auto& t : report["tensors"]) CHECK(t["calibrated"] == (t["to"] != "f32"));
    const auto refused = [&](std::vector<std::string> more, const std::string& says) {
        std::vector<std::string> args = {"quantize", checkpoint, to, "--type", "nf4", "--force"};
        args.insert(args.end(), more.begin(), more.end());
        check_refused(nibble_cli(args), 2, says);
    };
    refused({"--calibrate", alice, "--importance", weights}, "--importance");
    refused({"--calibrate", alice, "--no-search"}, "--no-search");
    refused({"--calibrate", s.file("short", "A few words.")}, "tokens");
    refused({"--calibrate", alice, "--type", "int8"}, "changes nothing");
    refused({"--windows", "3"}, "--calibrate");
    check_refused(nibble_cli({"perplexity", "-m", checkpoint, "-f", s.file("short", "A few words.")}), 2,
                  "tokens");
    check_refused(nibble_cli({"perplexity", "-m", checkpoint, "-f", alice, "--stride", "600"}), 2,
                  "--stride");
}

TEST_CASE("perplexity: a base with other tokens of the same number is refused, with the first of them") {
    const Scratch s;
    const fs::path other = s.dir / "other";
    fs::copy(root / "models/fairytale", other);
    auto j = nlohmann::ordered_json::parse(*read_text_file(other / "tokenizer.json"));
    auto& vocab = j["model"]["vocab"];
    std::swap(vocab["a"], vocab["b"]);
    std::ofstream(other / "tokenizer.json") << j.dump();
    check_refused(nibble_cli({"perplexity", "-f", (root / "tests/data/alice.txt").string(), "--windows", "1",
                              "--ctx", "64", "--base", other.string()}),
                  2, cat("--base: has other tokens: token ", vocab["b"].dump(), " is 'b', the model's 'a'"));
}

TEST_CASE("template: exact renderings of the model's, a file's and a named template") {
    const Scratch s;
    const std::string talk =
        s.file("talk.json", R"({"messages": [{"role": "user", "content": "Hi <|im_end|>"}]})");
    CHECK(nibble_cli({"template", "--conversation", talk}).out ==
          "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n");
    const fs::path templates = root / "tests/data/templates";
    const auto expected = nlohmann::json::parse(*read_text_file(templates / "expected.json"));
    int n = 0;
    for (const auto& [file, cases] : expected["files"].items())
        for (const auto& c : cases) {
            const ProcessResult r = nibble_cli({"template", "--template", (templates / file).string(),
                                                "--conversation", "-", "--now", "2026-11-20T12:00:00"},
                                               c.dump());
            if (c["expect"].is_string() && !c.contains("error")) {
                CHECK(r.code == 0);
                CHECK(r.out == c["expect"].get<std::string>());
            }
            ++n;
        }
    CHECK(n >= 50);
    CHECK(nibble_cli({"template", "--template", "plain", "--conversation", talk}).code == 0);
    const std::string strict = s.file("strict.jinja", "{{ raise_exception('only one turn') }}");
    check_refused(nibble_cli({"template", "--template", strict, "--conversation", talk}), 1, "only one turn");
    check_refused(nibble_cli({"template", "--template", "nosuch", "--conversation", talk}), 1, "chatml");
    check_refused(nibble_cli({"template", "--conversation", s.file("bad.json", "[1")}), 2, "bad.json");
    check_refused(nibble_cli({"template", "--conversation", "-"}), 2,
                  "nibble: standard input: is not a JSON");
}

TEST_CASE("help exits with 0") {
    for (const char* command :
         {"run", "inspect", "tokenize", "quantize", "perplexity", "calibrate", "template"}) {
        const ProcessResult r = nibble_cli({command, "--help"});
        CHECK(r.code == 0);
        CHECK(r.out.find("Examples") != std::string::npos);
    }
}

TEST_CASE("help fits a screen: 30 lines of 80 columns, two examples, a hint where options are left out") {
    const ProcessResult all = nibble_cli({"--help"});
    CHECK(all.code == 0);
    size_t commands = 0;
    for (size_t at = all.out.find("\n\n") + 2; all.out.compare(at, 2, "  ") == 0;
         at = all.out.find('\n', at) + 1) {
        const std::string command = all.out.substr(at + 2, all.out.find(' ', at + 2) - at - 2);
        const ProcessResult r = nibble_cli({command, "--help"}), more = nibble_cli({command, "--help-all"});
        INFO(r.out);
        ++commands;
        CHECK(r.code == 0);
        CHECK(more.code == 0);
        CHECK(std::ranges::count(r.out, '\n') <= (command == "run" ? 33 : 30));
        const size_t examples = r.out.find("\nExamples:\n  nibble ");
        REQUIRE(examples != std::string::npos);
        for (size_t line = 0; line < r.out.size(); line = r.out.find('\n', line) + 1)
            CHECK(r.out.find('\n', line) - line <= 80);
        CHECK(r.out.find("nibble ", r.out.find("nibble ", examples) + 7) != std::string::npos);
        CHECK((more.out.size() > r.out.size()) == (r.out.find("--help-all") != std::string::npos));
    }
    CHECK(commands >= 11);
    const std::string run = nibble_cli({"run", "--help"}).out, more = nibble_cli({"run", "--help-all"}).out;
    for (const char* text : {"\nSampling:\n", "--top-k X", " [40]", "--seed"})
        CHECK(run.find(text) != std::string::npos);
    CHECK(run.find("--dry-base") == std::string::npos);
    CHECK(more.find("--dry-base") != std::string::npos);
}

TEST_CASE("inspect --template: the template on stdout, its source on stderr, or the fallback's name") {
    const ProcessResult own = nibble_cli({"inspect", "--template"});
    CHECK(own.code == 0);
    CHECK(own.out.find("messages") != std::string::npos);
    CHECK(own.err.find("tokenizer.chat_template of ") != std::string::npos);
    const ProcessResult folder = nibble_cli({"inspect", "--template", checkpoint});
    CHECK(folder.out == own.out);
    CHECK(folder.err.find("_") != std::string::npos);
}

TEST_CASE("a fault of a model's tokenizer or template is a failure that names it, not wrong usage") {
    const Scratch s;
    const fs::path model = s.dir / "model";
    const auto with = [&](const std::string& file, const std::string& from, const std::string& to) {
        fs::remove_all(model);
        fs::copy(root / "models/fairytale", model);
        std::string text = *read_text_file(model / file);
        const size_t at = text.find(from);
        REQUIRE(at != std::string::npos);
        std::ofstream(model / file, std::ios::binary) << text.replace(at, from.size(), to);
        return nibble_cli({"run", "-m", model.string(), "-p", "x", "-n", "1"});
    };
    const ProcessResult template_fault = with("tokenizer_config.json", "{% for", "{% fro");
    check_refused(template_fault, 1, cat(model.string(), ": chat template:"));
    check_refused(template_fault, 1, "--template chatml");
    check_refused(nibble_cli({"template", "-m", model.string(), "--conversation", "-"}), 1,
                  cat(model.string(), ": chat template:"));
    check_refused(
        with("tokenizer_config.json", "\"chat_template\"", "\"add_bos_token\": 1, \"chat_template\""), 1,
        cat(model.string(), ": tokenizer_config.json: 'add_bos_token'"));
    check_refused(with("tokenizer.json", "\"merges\": [\"", "\"merges\": [\"\u00FF"), 1, model.string());
    check_refused(with("tokenizer.json", "\"Regex\": \"", "\"Regex\": \"("), 1, model.string());
    check_refused(with("config.json", "\"hidden_size\": 2", "\"hidden_size\": -2"), 1, model.string());
    check_refused(
        with("tokenizer_config.json", *read_text_file(root / "models/fairytale/tokenizer_config.json"), ""),
        1, cat("nibble: ", (model / "tokenizer_config.json").string(), ": is empty"));
}
