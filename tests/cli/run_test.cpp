// nibble run for scripts: where prompts come from, chat templates, JSON, batches, interruption.
// Everything goes through pipes.
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "ggml/file/tensor_file.h"
#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;
using nlohmann::json;

namespace {

std::vector<std::string> run_args(std::vector<std::string> more) {
    std::vector<std::string> args = {"run", "--temp", "0", "-n", "12", "-q"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
}

ProcessResult run(std::vector<std::string> more, const std::string& input = {}) {
    return nibble_cli(run_args(std::move(more)), input);
}

std::vector<json> lines(const std::string& text) {
    std::vector<json> list;
    for (size_t at = 0; at < text.size();) {
        const size_t end = text.find('\n', at);
        list.push_back(json::parse(text.substr(at, end - at)));
        at = end + 1;
    }
    return list;
}

}  // namespace

TEST_CASE("run: one prompt from -p, words, a file, a pipe, and both together") {
    const Scratch s;
    const std::string prompt = run({"-p", "Tell me a story."}).out;
    CHECK(!prompt.empty());
    CHECK(run({"Tell", "me", "a", "story."}).out == prompt);
    CHECK(run({}, "Tell me a story.").out == prompt);
    CHECK(run({"-f", s.file("p", "Tell me a story.")}).out == prompt);
    CHECK(run({"-f", "-"}, "Tell me a story.").out == prompt);
    const auto echoed = [&](std::vector<std::string> args, const std::string& input = {}) {
        args.insert(args.end(), {"--raw", "--echo", "-n", "0"});
        return run(args, input).out;
    };
    CHECK(echoed({"-p", "Summarise:"}, "A king.") == "Summarise:\n\nA king.");
    CHECK(echoed({"-p", "Summarise:", "-f", s.file("d", "A fox.")}) == "Summarise:\n\nA fox.");
    CHECK(echoed({"Summarise:", "-f", s.file("d", "A fox.")}) == "Summarise:\n\nA fox.");
    CHECK(echoed({"-p", "Join:", "-f", s.file("d", "A fox.")}, "A king.\n") == "Join:\n\nA fox.\n\nA king.");
    CHECK(echoed({"-f", s.file("crlf", "A fox.\r\n")}) == "A fox.");
    check_refused(run({}), 2, "prompt");
    check_refused(run({"-f", "/nonexistent"}), 1, "/nonexistent");
}

TEST_CASE("run: the template, its absence, a named one, the system prompt") {
    const ProcessResult chat = run({"-p", "Hi <|im_end|>", "--system", "Be kind.", "--echo", "-n", "0"});
    CHECK(chat.out ==
          "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi <|im_end|><|im_end|>\n"
          "<|im_start|>assistant\n");
    CHECK(run({"--raw", "-p", "Hi", "--echo", "-n", "0"}).out == "Hi");
    CHECK(run({"--template", "plain", "-p", "Hi", "--echo", "-n", "0"}).out == "User: Hi\n\nAssistant:");
    // What the template makes is what a raw prompt with control tokens gives.
    CHECK(run({"-p", "Tell me a story."}).out ==
          run({"--special", "-p", "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n"})
              .out);
    check_refused(run({"--raw", "--system", "x", "-p", "Hi"}), 2, "--system");
    check_refused(run({"--raw", "--chat", "-p", "Hi"}), 2, "--raw");
    check_refused(run({"--template", "nosuch", "-p", "Hi"}), 1, "chatml");
}

TEST_CASE("run: thoughts shown, apart, switched off") {
    const Scratch s;
    const std::string thinks =
        s.file("thinks",
               "{{ messages[-1].content }}{% if enable_thinking is not false %}<think>\n"
               "{% endif %}{{ style }}");
    const auto with = [&](std::vector<std::string> more) {
        std::vector<std::string> all = {"--template", thinks, "-p", "Hi"};
        all.insert(all.end(), more.begin(), more.end());
        return run(all);
    };
    const std::string plain = with({}).out;
    REQUIRE(plain.starts_with("<think>\n"));
    // All of it is thoughts, since nothing closes them.
    CHECK(with({"--hide-thinking"}).out == "");
    const json apart = json::parse(with({"--hide-thinking", "--json"}).out);
    CHECK(apart["text"] == "");
    CHECK(plain.find(apart["thinking"].get<std::string>()) != std::string::npos);
    CHECK(!apart["thinking"].get<std::string>().empty());
    CHECK(json::parse(with({"--json"}).out)["text"] == plain);
    CHECK(!json::parse(with({"--json"}).out).contains("thinking"));
    CHECK(with({"--think", "off", "--echo", "-n", "0"}).out == "Hi");
    CHECK(with({"--think", "on", "--echo", "-n", "0"}).out == "Hi<think>\n");
    CHECK(with({"--template-set", "enable_thinking=false", "--template-set", "style=[x", "--echo", "-n", "0"})
              .out == "Hi[x");
    // What follows a grammar has no thoughts before it.
    CHECK(with({"--regex", "yes|no", "--echo"}).out.starts_with("Hi"));
    CHECK(with({"--regex", "yes|no", "--echo"}).out.find("think") == std::string::npos);
    check_refused(with({"--regex", "yes|no", "--think", "on"}), 2, "--think");
    check_refused(with({"--think", "of"}), 2, "low");
    check_refused(with({"--template-set", "=x"}), 2, "NAME=VALUE");
    check_refused(run({"--raw", "-p", "Hi", "--think", "off"}), 2, "--raw");
    CHECK(with({"--think", "high"}).err.find("no effort") != std::string::npos);
    CHECK(run({"-p", "Hi", "--think", "on"}).err.find("no switch") != std::string::npos);
}

TEST_CASE("run --json: text, ids, end, timings, parameters, log-probabilities") {
    const ProcessResult r = run({"-p", "Tell me a story.", "--json", "--logprobs", "3"});
    CHECK(r.code == 0);
    const json j = json::parse(r.out);
    CHECK(j["text"] == run({"-p", "Tell me a story."}).out);
    CHECK(j["finish"] == "length");
    CHECK(j["tokens"].size() == 12);
    CHECK(j["parameters"]["temperature"] == 0.0);
    CHECK(j["parameters"]["seed"].is_number_unsigned());
    CHECK(j["timings"]["tokens_per_second"].get<double>() > 0);
    REQUIRE(j["logprobs"].size() == 12);
    for (size_t i = 0; i < 12; ++i) {
        const json& l = j["logprobs"][i];
        CHECK(l["token"] == j["tokens"][i]);
        REQUIRE(l["top"].size() == 3);
        CHECK(l["top"][0]["token"] == l["token"]);  // greedy
        CHECK(l["top"][0]["logprob"].get<double>() == doctest::Approx(l["logprob"].get<double>()));
        CHECK(l["logprob"].get<double>() <= 0);
        CHECK(l["top"][0]["logprob"].get<double>() >= l["top"][2]["logprob"].get<double>());
    }
    // The printed seed repeats a random text.
    const json random = json::parse(nibble_cli({"run", "-p", "Hi", "-n", "20", "--json", "-q"}).out);
    const std::string seed = cat(random["parameters"]["seed"].get<uint64_t>());
    CHECK(nibble_cli({"run", "-p", "Hi", "-n", "20", "-q", "--seed", seed}).out ==
          random["text"].get<std::string>());
}

TEST_CASE("run --prompt-cache: what one run computed of its prompt, the next one does not") {
    const Scratch s;
    const std::string cache = (s.dir / "cache").string();
    const std::string text = "The king and the goose went into the wood, and there they met an old woman. ";
    const auto ask = [&](const std::string& question, std::vector<std::string> more) {
        std::vector<std::string> all = {"--raw", "-p", text + text + question};
        all.insert(all.end(), more.begin(), more.end());
        return run(all);
    };
    const auto told = [&] {
        return nibble_cli({"run", "-n", "1", "--raw", "-p", text + text + "He", "--prompt-cache", cache}).err;
    };
    CHECK(told().find("computed") == std::string::npos);
    CHECK(told().find(", 1 of them computed, ") != std::string::npos);
    CHECK(ask("The goose", {"--prompt-cache", cache}).out == ask("The goose", {}).out);
    const json j = json::parse(ask("The goose", {"--prompt-cache", cache, "--json"}).out);
    CHECK(j["timings"]["reused_tokens"].get<int>() > j["prompt_tokens"].get<int>() - 5);
    CHECK(json::parse(ask("The goose", {"--json"}).out)["timings"]["reused_tokens"] == 0);
    const ProcessResult other = ask("She said", {"--prompt-cache", cache, "--kv-type", "int8"});
    CHECK(other.code == 0);
    CHECK(other.out == ask("She said", {"--kv-type", "int8"}).out);
    CHECK(other.err.find(cache) != std::string::npos);
    // A question in front leaves nothing in common.
    const std::string document = s.file("document", text);
    const auto hint = [&](std::vector<std::string> more, const std::string& input) {
        std::vector<std::string> all = {"run", "-n", "1", "--raw", "-f", document, "--prompt-cache", cache};
        all.insert(all.end(), more.begin(), more.end());
        return nibble_cli(all, input).err.find("stands before the document") != std::string::npos;
    };
    CHECK(hint({"-p", "Who?"}, ""));
    CHECK(!hint({}, "Who?"));
    check_refused(ask("", {"--prompt-cache", s.file("poem", text)}), 1, "poem");
    check_refused(ask("", {"--prompt-cache", s.dir.string()}), 2, "is a folder");
}

TEST_CASE("run --jsonl: a line per event, adding up to the text") {
    const auto events = lines(run({"-p", "Tell me a story.", "--jsonl"}).out);
    REQUIRE(events.size() == 14);
    CHECK(events.front()["event"] == "start");
    CHECK(events.back()["event"] == "end");
    std::string text;
    for (size_t i = 1; i + 1 < events.size(); ++i) text += events[i]["text"];
    CHECK(text == events.back()["text"].get<std::string>());
    check_refused(run({"-p", "x", "--json", "--jsonl"}), 2, "--json");
}

TEST_CASE("run --prompts: many in one load, in order, each as if alone") {
    const Scratch s;
    // With AMX many rows have an arithmetic of their own without this.
    const auto run = [](std::vector<std::string> more, const std::string& input = {}) {
        more.push_back("--deterministic");
        return nibble_cli(run_args(std::move(more)), input);
    };
    const std::vector<std::string> prompts = {"Tell me a story.",
                                              "Who are you?",
                                              "Where is the king's daughter?",
                                              "Why?",
                                              "When?",
                                              "Go on with the tale of the goose girl, please."};
    std::string file, objects, expected;
    for (const std::string& p : prompts) {
        file += p + "\n\n";
        objects += json{{"prompt", p}}.dump() + "\n";
        expected += run({"-p", p}).out + "\n";
    }
    CHECK(run({"--prompts", s.file("p.txt", file)}).out == expected);
    CHECK(run({"--prompts", s.file("p.jsonl", objects), "--parallel", "1"}).out == expected);
    CHECK(run({"--prompts", "-"}, file).out == expected);
    const json array = json::parse(run({"--prompts", s.file("p.txt", file), "--json"}).out);
    REQUIRE(array.size() == prompts.size());
    std::string together;
    for (const json& j : array) together += j["text"].get<std::string>() + "\n";
    CHECK(together == expected);
    CHECK(json::parse(run({"--prompts", "-", "--json"}, "Why?\n").out).is_array());  // of one as well
    const auto events = lines(run({"--prompts", s.file("p.txt", file), "--jsonl"}).out);
    int index = 0;
    for (const json& e : events) {
        CHECK(e["index"].get<int>() >= index);
        index = e["index"];
    }
    const std::string talk =
        R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]})";
    CHECK(run({"--prompts", s.file("t.jsonl", talk), "--echo", "-n", "0"}).out.find("system\nS<|im_end|>") !=
          std::string::npos);
    check_refused(run({"--prompts", s.file("bad.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": 1}\n")}), 2,
                  "line 2");
    check_refused(run({"--prompts", s.file("bad.jsonl", "text\n")}), 2, "line 1");
    for (const char* line : {R"({"prompt": "a", "system": 5})", R"({"prompt": "a", "messages": []})",
                             R"({"messages": {"role": "user"}})"}) {
        CAPTURE(line);
        check_refused(run({"--prompts", s.file("bad.jsonl", cat(line, "\n"))}), 2, "bad.jsonl line 1: has");
    }
    check_refused(run({"--prompts", s.file("bad.jsonl", "{\"prompt\": \"a\", \"seed\": 3}\n")}), 2, "'seed'");
    check_refused(run({"--prompts", s.file("t.jsonl", talk), "--raw"}), 2, "leave out --raw");
    // Each draws what it would alone; of equal ones the first.
    const std::vector<std::string> warm = {"--temp", "1", "--seed", "14"};
    const auto drawn = [&](std::vector<std::string> args, const std::string& input = {}) {
        args.insert(args.end(), warm.begin(), warm.end());
        return run(args, input).out;
    };
    const std::string first = drawn({"-p", "Why?"}), second = drawn({"-p", "When?"});
    const std::string all = drawn({"--prompts", "-"}, "Why?\nWhen?\nWhy?\n");
    CHECK(all.starts_with(first + "\n" + second + "\n"));
    CHECK(!all.ends_with(first + "\n"));
    // A line that should be JSON and is not is no text beside lines that are.
    check_refused(run({"--prompts", "-"}, "{\"prompt\": \"a\n{\"prompt\": \"b\"}\n"), 2, "input line 1");
    check_refused(run({"--prompts", "-"}, "{\"prompt\": \"b\"}\nplain\n"), 2, "input line 2");
    check_refused(run({"--prompts", "-"}, "[\n{\"prompt\": \"b\"}\n]\n"), 2, "input line 1");
    check_refused(run({"--prompts", "-"}, "[{\"prompt\": \"b\"}]\n"), 2, "input line 1: is a JSON array");
    const std::vector<std::string> echo = {"--prompts", "-", "--raw", "--echo", "-n", "0"};
    check_refused(run(echo, "{\"prompt\":\"a\"}{\"prompt\":\"b\"}\n"), 2, "line 1");
    check_refused(run(echo, "{\"prompt\": \"\"}\n"), 2, "no prompt");
    CHECK(run(echo, "{\"name\": \"\nplain\n").out == "{\"name\": \"\nplain\n");
    CHECK(run(echo, "\xEF\xBB\xBF {\"prompt\": \"b\"}\r\n").out == "b");
    check_refused(run({"--prompts", "-", "-c", "20"}, "a\n\n" + std::string(200, '!') + "\nb\n"), 2,
                  "prompt 2 of 3: has ");
    check_refused(run({"--prompts", s.file("none", "\n \n")}), 2, "none");
    check_refused(run({"--prompts", s.file("p.txt", file), "-p", "x"}), 2, "--prompts");
}

TEST_CASE("run: guessed tokens are told of, and the answer is the same") {
    const auto answer = [](std::vector<std::string> more) {
        more.insert(more.end(), {"--raw", "-p", "Once upon a time", "-n", "150", "--ignore-eos", "--json"});
        return json::parse(run(more).out);
    };
    const json without = answer({"--draft-tokens", "0"});
    CHECK(without["timings"]["guessed_tokens"] == 0);
    const std::string draft = std::string(NIBBLE_SOURCE_DIR) + "/models/fairytale";
    for (const auto& how : {std::vector<std::string>{"--draft-tokens", "12"},
                            {"--draft-tokens", "3"},
                            {"--draft-model", draft}}) {
        const json with = answer(how);
        CHECK(with["tokens"] == without["tokens"]);
        CHECK(with["text"] == without["text"]);
        CHECK(with["timings"]["guessed_tokens"] > 30);
    }
    check_refused(run({"-p", "Hi", "--draft-tokens", "32"}), 2, "31");
    CHECK(answer({"--draft-tokens", "0", "--draft-model", "/dev/null/none"})["tokens"] == without["tokens"]);
    check_refused(run({"-p", "Hi", "--draft-model", "/dev/null/none"}), 1, "/dev/null/none");
    const std::string other = std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/models/gemma3";
    check_refused(run({"-p", "Hi", "--draft-model", other}), 2, "same tokens");
}

TEST_CASE("run: a guest as quantize makes it of a folder without a tokenizer") {
    namespace fs = std::filesystem;
    const fs::path model = fs::path(NIBBLE_SOURCE_DIR) / "tests/golden/models/qwen3_tales",
                   folder = fs::temp_directory_path() / "nibble_guest_cli", guest = folder / "guest.gguf";
    fs::remove_all(folder);
    fs::create_directories(folder / "guest");
    for (const char* file : {"config.json", "model.safetensors"})
        fs::copy(model / "assistant" / file, folder / "guest" / file);
    const ProcessResult made =
        nibble_cli({"quantize", (folder / "guest").string(), guest.string(), "--type", "int8"});
    REQUIRE_MESSAGE(made.code == 0, made.err);
    const auto told = [&](std::vector<std::string> more) {
        more.insert(more.end(), {"-m", model.string(), "--raw", "-p", "The king", "-n", "60", "--json"});
        const ProcessResult r = run(more);
        REQUIRE_MESSAGE(r.code == 0, r.err);
        return json::parse(r.out);
    };
    const json with = told({"--seed", "3", "--draft-model", guest.string()});
    CHECK(with["tokens"] == told({"--seed", "3", "--draft-tokens", "0"})["tokens"]);
    CHECK(with["timings"]["guessed_tokens"] > 5);
    check_refused(run({"-m", guest.string(), "-p", "Hi"}), 1, "guesses for another model");
    fs::remove_all(folder);
}

TEST_CASE("run: a prompt longer than the context is an error with both numbers") {
    std::string book;
    for (int i = 0; i < 200; ++i) book += "The King said to his daughter. ";
    const ProcessResult r = run({"--ctx", "64"}, book);
    check_refused(r, 2, "context holds 64");
    CHECK(r.err.find("prompt: has 1") != std::string::npos);
}

TEST_CASE("run: interrupted, what came is complete output of its kind and the exit code is 130") {
    const auto interrupted = [](std::vector<std::string> more) {
        std::vector<std::string> args = {"run", "-p", "Once", "--ignore-eos", "--ctx", "512", "-q"};
        args.insert(args.end(), more.begin(), more.end());
        return nibble_cli(args, {}, SIGINT);
    };
    const ProcessResult r = interrupted({"--jsonl"});
    CHECK(r.code == 130);
    const auto events = lines(r.out);
    CHECK(events.back()["finish"] == "cancelled");
    const ProcessResult text = interrupted({});
    CHECK(text.code == 130);
    CHECK(text.err.empty());
}

TEST_CASE("run: SIGTERM and SIGHUP complete the output as Ctrl-C does, and kill as usual") {
    const Scratch s;
    const std::string two = s.file("p.txt", "Once\nTwice\n"), out = (s.dir / "out").string();
    for (const int signal : {SIGTERM, SIGHUP}) {
        CAPTURE(signal);
        const ProcessResult r =
            nibble_cli({"run", "-p", "Once", "--ignore-eos", "--ctx", "512", "-q", "--jsonl"}, {}, signal);
        CHECK(r.code == 128 + signal);
        CHECK(r.err.empty());
        CHECK(lines(r.out).back()["finish"] == "cancelled");
        // --json prints at the end: the signal comes when the program catches it.
        const auto ended = [&](const std::string& prompt) {
            const ProcessResult p = shell(
                cat("\"$0\" run --raw ", prompt, " --ignore-eos -c 8000 --json -q > ", out,
                    " < /dev/null & p=$!; n=0; m=0; while [ $n -lt 600 ] && [ $((m & 0x4000)) -eq 0 ]; do "
                    "n=$((n + 1)); sleep 0.05; m=$(sed -n 's/^SigCgt:[^0-9a-f]*/0x/p' /proc/$p/status); "
                    "done; kill -",
                    signal, " $p; wait $p; echo $?"));
            CHECK(p.out == cat(128 + signal, "\n"));
            return json::parse(std::ifstream(out));
        };
        CHECK(ended("-p Once")["finish"] == "cancelled");
        const json list = ended("--prompts " + two);
        REQUIRE(list.size() == 2);
        for (const json& j : list) CHECK(j["finish"] == "cancelled");
    }
}

TEST_CASE("run: when the engine fails midway, JSON is complete and says why") {
    // A model whose embedding of one token holds a NaN, which --check-nan finds when the token comes.
    const Scratch s;
    const std::string model = (s.dir / "m.gguf").string();
    REQUIRE(nibble_cli({"synth", "--shape", "llama-3.1-8b", "--layers", "1",          "--embd", "64",
                        "--ff",  "64",      "--heads",      "1",        "--kv-heads", "1",      "--head-dim",
                        "64",    "--vocab", "4200",         "--type",   "bf16",       "-o",     model})
                .code == 0);
    const int32_t bad = std::stoi(nibble_cli({"tokenize", "--ids", "king"}).out);
    {
        const auto file = TensorFile::open(model);
        REQUIRE(file);
        const TensorInfo* t = file->find("token_embd.weight");
        REQUIRE(t);
        const std::string whole = *read_text_file(model);
        const std::string_view table(reinterpret_cast<const char*>(t->data.data()), t->data.size());
        const size_t at = whole.find(table);
        REQUIRE(at != std::string::npos);
        std::fstream(model, std::ios::binary | std::ios::in | std::ios::out)
            .seekp(static_cast<std::streamoff>(at) + bad * 128)
            .write("\xc0\x7f", 2);
    }
    const auto fail = [&](const std::string& prompts, const char* format) {
        return nibble_cli({"run", "--raw", "-m", model, "--prompts", "-", "--parallel", "1", "--check-nan",
                           "--temp", "0", "-n", "2", "-q", format},
                          prompts);
    };
    const ProcessResult r = fail("Once\nking\nTwice\n", "--json");
    CHECK(r.code == 1);
    CHECK(r.err.find("--check-nan") != std::string::npos);
    const json list = json::parse(r.out);
    REQUIRE(list.size() == 3);
    CHECK(list[0]["finish"] == "length");
    CHECK(!list[0].contains("error"));
    for (const size_t i : {1, 2}) {
        CHECK(list[i]["finish"] == "error");
        CHECK(list[i]["error"].get<std::string>().starts_with("--check-nan: "));
    }
    const ProcessResult one = fail("king\n", "--json");
    CHECK(one.code == 1);
    CHECK(json::parse(one.out)[0]["finish"] == "error");
    const auto events = lines(fail("Once\nking\n", "--jsonl").out);
    CHECK(events.back()["event"] == "end");
    CHECK(events.back()["finish"] == "error");
    CHECK(fail("king\n", "-q").out.empty());
}
