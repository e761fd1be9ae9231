// The configuration file, NIBBLE_* variables and names of models, as a user meets them.
// Each case has folders and variables of its own.
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;

namespace {

// Sets variables for the programs that are run, and takes them back.
class Variables {
  public:
    void set(const char* name, const std::string& value) {
        names_.push_back(name);
        ::setenv(name, value.c_str(), 1);
    }
    ~Variables() {
        for (const char* name : names_) ::unsetenv(name);
    }

  private:
    std::vector<const char*> names_;
};

// A configuration of this text stops `run` with what is wrong in the line.
void check_config_refused(const Scratch& s, Variables& v, const std::string& text, size_t line,
                          std::string_view says) {
    CAPTURE(text);
    const std::string file = s.file("config.toml", text);
    v.set("NIBBLE_CONFIG", file);
    check_refused(nibble_cli({"run", "-p", "x"}), 2, cat("nibble: ", file, " line ", line, ": ", says));
}

nlohmann::json parameters(std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"run", "--raw", "-p", "x", "-n", "1", "--json", "-q"};
    args.insert(args.end(), more.begin(), more.end());
    const ProcessResult r = nibble_cli(args);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return nlohmann::json::parse(r.out)["parameters"];
}

}  // namespace

TEST_CASE("settings: flags win over variables, variables over the file, its tables over its top") {
    const Scratch s;
    Variables v;
    v.set("NIBBLE_CONFIG",
          s.file("config.toml",
                 "temp = 0.25  # for all\ntop_k = 7\nctx = 100\nseed = 1\n\n[run]\ntop-k = 9\n"
                 "quiet = true\n[chat]\ntop_k = 11\n"));
    auto p = parameters();
    CHECK(p["temperature"] == 0.25);
    CHECK(p["top_k"] == 9);
    CHECK(p["ctx"] == 100);
    v.set("NIBBLE_CTX", "64");
    v.set("NIBBLE_TOP_K", "12");
    p = parameters({"--temp", "0.5"});
    CHECK(p["temperature"] == 0.5);
    CHECK(p["top_k"] == 12);
    CHECK(p["ctx"] == 64);
    p = parameters({"-c", "32", "--top-k=13"});
    CHECK(p["ctx"] == 32);
    CHECK(p["top_k"] == 13);
    v.set("NIBBLE_SYSTEM", "of no use to inspect, whose --system is a switch");
    CHECK(nibble_cli({"inspect", "--no-tensors"}).code == 0);
}

TEST_CASE("settings: a word that is another option's value is neither an option nor a prompt") {
    Variables v;
    v.set("NIBBLE_N_PREDICT", "3");
    const auto n = [](std::vector<std::string> args) {
        args.insert(args.begin(), {"run", "--json", "--ctx", "64"});
        const ProcessResult r = nibble_cli(args);
        REQUIRE(r.code == 0);
        return nlohmann::json::parse(r.out)["parameters"]["n"].get<int>();
    };
    CHECK(n({"-p", "-nice"}) == 3);
    CHECK(n({"-qp", "-n"}) == 3);
    CHECK(n({"-p", "-h"}) == 3);
    CHECK(n({"--system", "--n-predict", "x"}) == 3);
    CHECK(n({"x", "-n4"}) == 4);
    CHECK(n({"-qn", "4", "x"}) == 4);
    CHECK(n({"-n", "4", "--", "-x"}) == 4);
    v.set("NIBBLE_MODEL", "no/such/model");
    for (const std::vector<std::string>& args :
         {std::vector<std::string>{"plan", "--ctx", "256"}, {"plan", "--ctx=256"}, {"plan", "-t", "1"}})
        CHECK(nibble_cli(args).err.find("no/such/model: no such file") != std::string::npos);
}

TEST_CASE("settings: switches, lists, and what the user's flags exclude") {
    const Scratch s;
    Variables v;
    const std::vector<std::string> greedy = {"run", "--raw", "-p",     "Once upon a time",
                                             "-n",  "20",    "--temp", "0"};
    v.set("NIBBLE_CONFIG", "");
    const std::string full = nibble_cli(greedy).out;
    REQUIRE(full.size() > 12);
    const std::string two = full.substr(8, 3), one = full.substr(4, 3);
    v.set("NIBBLE_CONFIG",
          s.file("config.toml", cat("[run]\nstop = [\"", two, "\", \"", one,
                                    "\"]\nregex = \"[a-z]+\"\njson = true\nquiet = true\n")));
    ProcessResult r = nibble_cli({"run", "-p", "x", "--raw", "-n", "5", "--jsonl"});  // excludes json
    CHECK(r.code == 0);
    CHECK(r.err.empty());
    CHECK(r.out.starts_with("{\""));
    auto args = greedy;
    args.insert(args.end(), {"--regex", "[^#]*", "--json=false"});
    CHECK(nibble_cli(args).out == full.substr(0, std::min(full.find(one), full.find(two))));
    args.insert(args.end(), {"--stop", two});  // a list that is given replaces the other
    CHECK(nibble_cli(args).out == full.substr(0, full.find(two)));
}

TEST_CASE("settings: what contradicts a flag or a stronger setting gives way") {
    const Scratch s;
    Variables v;
    const auto with = [&](const std::string& config, std::vector<std::string> more) {
        std::vector<std::string> args = {"run", "-q", "-n", "8", "-p", "Hi"};
        args.insert(args.end(), more.begin(), more.end());
        v.set("NIBBLE_CONFIG", s.file("config.toml", config));
        ProcessResult r = nibble_cli(args);
        INFO(r.err);
        CHECK(r.code == 0);
        CHECK(r.err.empty());
        return r;
    };
    with("system = \"x\"\n", {"--raw"});
    with("[run]\nraw = true\n", {"--system", "x"});
    with("[run]\nraw = true\n", {"--template", "chatml"});
    with("raw = false\nsystem = \"x\"\n", {});  // no contradiction
    const auto has_logprobs = [](const ProcessResult& r) {
        return nlohmann::json::parse(r.out).contains("logprobs");
    };
    with("logprobs = 2\n", {});
    CHECK(has_logprobs(with("logprobs = 2\n", {"--json"})));
    CHECK(has_logprobs(with("[run]\nlogprobs = 2\njson = true\n", {})));
    with("length_penalty = 2\n", {});
    // The table over the top of the file, variables over the table.
    const std::string a = s.file("a.gbnf", "root ::= \"aaa\"\n");
    const std::string top = "regex = \"bbb\"\ntemp = 0.3\n", table = cat("[run]\ngrammar = \"", a, "\"\n");
    CHECK(with(top, {}).out == "bbb");
    CHECK(with(top + table, {}).out == "aaa");
    v.set("NIBBLE_REGEX", "ccc");
    CHECK(with(top + table, {}).out == "ccc");
    CHECK(with(top + table, {"--regex", "ddd"}).out == "ddd");
    v.set("NIBBLE_BEAMS", "2");
    CHECK(with(top + table, {}).out == "ccc");
    v.set("NIBBLE_SYSTEM", "x");
    with("", {"--raw"});
    // Which of two that are equally strong is meant, only the user knows.
    v.set("NIBBLE_GRAMMAR", a);
    const ProcessResult r = nibble_cli({"run", "-p", "x"});
    CHECK(r.code == 2);
    for (const char* name : {"NIBBLE_REGEX", "NIBBLE_GRAMMAR"})
        CHECK(r.err.find(cat(" comes from ", name, "\n")) != std::string::npos);
}

TEST_CASE("settings: a switch is true or false, and a list stands only where several values do") {
    const Scratch s;
    Variables v;
    const auto refused = [&](const std::string& text, size_t line, std::string_view says) {
        check_config_refused(s, v, text, line, says);
    };
    refused("json = \"maybe\"\n", 1, "'json' is true or false, not 'maybe'\n");
    refused("[run]\njson = \"maybe\"\n", 2, "'json' is true or false, not 'maybe'\n");
    refused("[run]\njson = 3\n", 2, "'json' is true or false, not '3'\n");
    refused("[models]\nx = \"y\"\n[chat]\nno-color = \"\"\n", 4, "'no-color' is true or false, not ''\n");
    refused("[run]\nn-predict = [1, 2]\n", 2, "'n-predict' takes one value, not a list\n");
    refused("n-predict = [1, 2]\n", 1, "'n-predict' takes one value, not a list (a list for another");
    refused("temp = [1]\n", 1, "'temp' takes one value, not a list\n");
    refused("[run]\nquiet = [true]\n", 2, "'quiet' takes one value, not a list\n");
    v.set("NIBBLE_CONFIG", s.file("config.toml", "[bench]\nn-predict = [4, 8]\n"));
    CHECK(nibble_cli({"run", "-q", "-n", "0", "x"}).code == 0);
    v.set("NIBBLE_JSON", "maybe");
    check_refused(nibble_cli({"run", "-p", "x"}), 2,
                  "nibble: NIBBLE_JSON: 'json' is true or false, not 'maybe'\n");
    CHECK(nibble_cli({"run", "-q", "-n", "0", "--json", "x"}).out.starts_with("{"));
    for (const std::string word : {"true", "on", "yes", "1", "false", "off", "no", "0"}) {
        CAPTURE(word);
        const bool on = word == "true" || word == "on" || word == "yes" || word == "1";
        v.set("NIBBLE_JSON", word);
        CHECK(nibble_cli({"run", "-q", "-n", "0", "x"}).out.starts_with("{") == on);
        v.set("NIBBLE_JSON", "");
        CHECK(nibble_cli({"run", "-q", "-n", "0", "x", cat("--json=", word)}).out.starts_with("{") == on);
    }
    check_refused(nibble_cli({"run", "x", "--json=3"}), 2, "nibble: --json: '3' is neither true nor false (");
    check_refused(nibble_cli({"inspect", "--no-tensors=99999999999999999999"}), 2, "true or false");
}

TEST_CASE("sampling flags: what is given of lists adds up, of other values the last counts") {
    const Scratch s;
    Variables v;
    v.set("NIBBLE_CONFIG", "");
    const auto p = parameters({"--logit-bias", "343:-inf", "--logit-bias=34:-1,5:2", "--top-k", "3",
                               "--top-k=4", "--dry-sequence-breakers", "a\\,b", "--dry-sequence-breakers",
                               "c", "--samplers", "top_k", "--samplers", "temperature", "-n", "010"});
    CHECK(p["logit_bias"] == "343:-inf,34:-1,5:2");
    CHECK(p["dry_sequence_breakers"] == nlohmann::json::array({"a,b", "c"}));
    CHECK(p["samplers"] == "top_k,temperature");
    CHECK(p["top_k"] == 4);
    CHECK(p["n"] == 10);
    CHECK(parameters({"--logit-bias=", "--logit-bias", "5:2"})["logit_bias"] == "5:2");
    v.set("NIBBLE_CONFIG", s.file("config.toml", "logit_bias = [\"343:-inf\", \"34:-1\"]\nctx = 0100\n"));
    CHECK(parameters()["logit_bias"] == "343:-inf,34:-1");
    CHECK(parameters()["ctx"] == 100);
    CHECK(parameters({"--logit-bias", "5:2"})["logit_bias"] == "5:2");
}

TEST_CASE("settings: what is for a GPU stops no program, with a backend for it or without") {
    const Scratch s;
    Variables v;
    v.set("NIBBLE_CONFIG",
          s.file("config.toml", "device = \"cpu\"\ngpu_layers = 0\n[run]\ndeterministic = true\n"));
    CHECK(nibble_cli({"run", "-p", "x", "-n", "1"}).code == 0);
    v.set("NIBBLE_CONFIG", s.file("config.toml", "gpu_layer = 0\n"));
    check_refused(nibble_cli({"run", "-p", "x"}), 2, "'gpu-layer' is not a setting");
    v.set("NIBBLE_CONFIG", s.file("config.toml", "[rnu]\ndevice = \"cpu\"\n"));
    check_refused(nibble_cli({"run", "-p", "x"}), 2, "'rnu.device' is not a setting");
}

TEST_CASE("settings: mistakes are named with their place") {
    const Scratch s;
    Variables v;
    v.set("NIBBLE_CONFIG", s.file("config.toml", "tempp = 1\n"));
    check_refused(nibble_cli({"run", "-p", "x"}), 2, "'tempp' is not a setting");
    CHECK(nibble_cli({"run", "--help"}).code == 0);
    v.set("NIBBLE_CONFIG", s.file("config.toml", "[run]\nshape = \"x\"\n"));
    check_refused(nibble_cli({"run", "-p", "x"}), 2, "'run.shape'");
    v.set("NIBBLE_CONFIG", (s.dir / "none.toml").string());
    check_refused(nibble_cli({"run", "-p", "x"}), 1, "none.toml");
    v.set("NIBBLE_CONFIG", s.file("config.toml", "top_p = 1.5\n"));
    const ProcessResult r = nibble_cli({"run", "-p", "x"});
    CHECK(r.code == 2);
    CHECK(r.err.find("note: --top-p=1.5 comes from") != std::string::npos);
    v.set("NIBBLE_CONFIG", "");
    v.set("NIBBLE_CTX", "none");
    CHECK(nibble_cli({"run", "-p", "x"}).err.find("comes from NIBBLE_CTX") != std::string::npos);
    v.set("NIBBLE_CTX", "0x40");
    CHECK(nibble_cli({"run", "-p", "x"}).err.find("comes from NIBBLE_CTX") != std::string::npos);
}

TEST_CASE("settings: a file that is not there is told with where its name is from") {
    const Scratch s;
    Variables v;
    const std::string file = s.file("config.toml", "model = \"/gone.gguf\"\n");
    v.set("NIBBLE_CONFIG", file);
    ProcessResult r = nibble_cli({"run", "-p", "x"});
    CHECK(r.code == 1);
    CHECK(r.err.find(cat("note: --model=/gone.gguf comes from ", file, " line 1\n")) != std::string::npos);
    check_refused(nibble_cli({"run", "-p", "x", "-m", "/gone"}), 1, "/gone");
    v.set("NIBBLE_MODEL", "/nonexist");
    r = nibble_cli({"run", "-p", "x"});
    CHECK(r.code == 1);
    CHECK(r.err.find("note: --model=/nonexist comes from NIBBLE_MODEL\n") != std::string::npos);
}

TEST_CASE("settings: a broken line is named with the file, its number and what is wrong") {
    const Scratch s;
    Variables v;
    const auto refused = [&](const std::string& text, size_t line, std::string_view says) {
        check_config_refused(s, v, text, line, says);
    };
    refused("# one\n\ntemp 0.5\n", 3, "'temp' has no value (write name = value)");
    refused("temp =\n", 1, "'temp' has no value");
    refused("top_k = 1\r\nmodel = \"a.gguf\r\n", 2, "a text is not closed (end it with \")");
    refused("model = a\"b\n", 1, "a quote within a value");
    refused("system = be kind\n", 1, "'kind' is too much on this line (a text with spaces is put in quotes");
    refused("temp = 1 2 # three\n", 1, "'2 # three' is too much");
    refused("temp = 1\n= 2\n", 2, "'= 2' is no name");
    refused("temp = 1\n?\n", 2, "'?' is no name");
    refused("[run\ntemp = 1\n", 1, "the name of a table is not closed");
    refused("[run] temp = 1\n", 1, "'temp = 1' is too much");
    refused("[run.a]\ntemp = 1\n", 1, "is a table in a table");
    refused("[[run]]\n", 1, "a list of tables");
    refused("[run]\nstop = [\"a\",\n  \"b\"\n\n", 2, "the list is not closed");
    refused("[run]\nstop = [\"a\" \"b\"]\n", 2, "before '\"b\"]' a comma is missing");
    refused("stop = [[\"a\"]]\n", 1, "a list in a list");
    refused("[run]\nsystem = \"a\\qb\"\n", 2, "'\\q' is no escape");
    refused("system = \"\\ud800\"\n", 1, "'\\u' is no escape");
    refused("system = \"\"\"\nabc\"\"\"\n", 1, "texts of several lines");
    refused("temp = 1\n\ntemp = 2\n", 3, "'temp' is set in line 1 already");
    refused("[models]\nx = \"/a\"\nx = \"/b\"\n", 3, "'x' has a path already");
    refused("model_folders = [\"/a\"]\nmodel_folders = [\"/b\"]\n", 2, "'model_folders' is set already");
    refused("top_k = 1\n[run]\nx = 1\n", 3, "'run.x' is not a setting");
    refused("[models]\na = [\"x\"]\n", 2, "'a' is not a path");
    refused("[models]\na = \"\"\n", 2, "'a' is not a path");
    // A value that its flag refuses: the note tells the line.
    v.set("NIBBLE_CONFIG", s.file("config.toml", "\n[run]\n\ntop_p = 1.5\n"));
    CHECK(nibble_cli({"run", "-p", "x"}).err.find("config.toml line 4\n") != std::string::npos);
}

TEST_CASE("settings: texts, lists over lines, comments, dots") {
    const Scratch s;
    Variables v;
    v.set("NIBBLE_CONFIG",
          s.file("config.toml",
                 "\xEF\xBB\xBF\"system\" = \"a # b, \\\"c\\\" \\u00e4\\n\"  # comment\r\n"
                 "run.temp = 0.25\nctx=100#\n [ 'run' ] # here\ntop-k = 9\nstop = [ # none\n 'z\\', # one\n"
                 "\n  \"#]\" ,\n]\nquiet = true"));
    const auto p =
        nlohmann::json::parse(nibble_cli({"run", "-p", "x", "-n", "0", "--json"}).out)["parameters"];
    CHECK(p["temperature"] == 0.25);
    CHECK(p["ctx"] == 100);
    CHECK(p["top_k"] == 9);
    const ProcessResult r = nibble_cli({"run", "-p", "x", "--template", "plain", "--echo", "-n", "0"});
    CHECK(r.out.find("a # b, \"c\" \u00e4") != std::string::npos);
    CHECK(r.err.empty());
}

TEST_CASE("models: aliases, folders and the bundled one; -m takes their names") {
    const Scratch s;
    Variables v;
    fs::create_directories(s.dir / "folder");
    fs::copy_file(root / "models/fairytale-int8.gguf", s.dir / "folder/story.gguf");
    fs::create_directory_symlink(root / "models/fairytale", s.dir / "folder/checkpoint");
    s.file("folder/broken.gguf", "GGUF");
    v.set("NIBBLE_CONFIG", s.file("config.toml",
                                  "model_folders = [\"folder\"]\n[models]\ntales = \"folder/story.gguf\"\n"
                                  "lost = \"nowhere.gguf\"\n"));
    const ProcessResult names = nibble_cli({"models", "--names"});
    CHECK(names.out.starts_with("lost\ntales\nbroken\ncheckpoint\nstory\n"));
    CHECK(names.out.find("\nfairytale-int8\n") != std::string::npos);
    const auto list = nlohmann::json::parse(nibble_cli({"models", "--json"}).out);
    CHECK(list[0]["error"].get<std::string>().find("nowhere.gguf") != std::string::npos);
    CHECK(list[1]["architecture"] == "llama");
    CHECK(list[1]["type"] == "q8_0");
    CHECK(list[1]["bytes"] == fs::file_size(s.dir / "folder/story.gguf"));
    CHECK(list[3]["type"] == "bf16");
    CHECK(list[3]["parameters"].get<int64_t>() > 5'000'000);
    const ProcessResult table = nibble_cli({"models"});
    CHECK(table.code == 0);
    CHECK(table.out.find("not usable") != std::string::npos);

    const auto text = [](const std::string& name) {
        return nibble_cli({"run", "--raw", "-m", name, "-p", "Once", "-n", "3", "--temp", "0", "-q"}).out;
    };
    const std::string expected = text((root / "models/fairytale-int8.gguf").string());
    CHECK(!expected.empty());
    CHECK(text("tales") == expected);
    CHECK(text("story") == expected);
    CHECK(text("story.gguf") == expected);
    CHECK(!text("checkpoint").empty());
    check_refused(nibble_cli({"run", "-p", "x", "-m", "nobody"}), 1, "`nibble models`");
    v.set("NIBBLE_MODEL", "tales");
    CHECK(nibble_cli({"inspect"}).out.find("story.gguf") != std::string::npos);
}
