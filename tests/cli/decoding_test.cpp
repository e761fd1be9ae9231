// nibble run with --beams and --best-of: text, JSON, and what they cannot be combined with.
// The search itself is tested in tests/engine/choice_test.cpp.
#include <nlohmann/json.hpp>

#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;
using json = nlohmann::json;

namespace {

ProcessResult ask(std::vector<std::string> more) {
    std::vector<std::string> args = {"run", "-p", "Tell me a story.", "-n", "12", "-q"};
    args.insert(args.end(), more.begin(), more.end());
    return nibble_cli(args);
}

}  // namespace

TEST_CASE("run --beams: repeatable text, and JSON with every answer and its score") {
    const ProcessResult text = ask({"--beams", "4"});
    CHECK(text.code == 0);
    CHECK(ask({"--beams", "4"}).out == text.out);
    CHECK(ask({"--beams", "1"}).out == ask({"--temp", "0"}).out);
    const json j =
        json::parse(ask({"--beams", "4", "--length-penalty", "0.5", "--json", "--logprobs", "2"}).out);
    CHECK(j["parameters"]["beams"] == 4);
    CHECK(j["parameters"]["length_penalty"] == 0.5);
    CHECK(!j["parameters"].contains("temperature"));
    REQUIRE(j["alternatives"].size() == 4);
    CHECK(j["text"] == j["alternatives"][0]["text"]);
    CHECK(j["tokens"] == j["alternatives"][0]["tokens"]);
    CHECK(j["score"] == j["alternatives"][0]["score"]);
    double sum = 0;
    for (const json& t : j["logprobs"]) sum += t["logprob"].get<double>();
    CHECK(sum == doctest::Approx(j["alternatives"][0]["logprob"].get<double>()));
    for (size_t i = 1; i < 4; ++i) CHECK(j["alternatives"][i]["score"] <= j["alternatives"][i - 1]["score"]);
    const Scratch s;
    const std::string schema = s.file("s.json", R"({"enum": ["yes", "no", "perhaps"]})");
    const std::string said = json::parse(ask({"--beams", "3", "--json-schema", schema}).out);
    CHECK((said == "yes" || said == "no" || said == "perhaps"));
}

TEST_CASE("run --best-of: the answer of the seed that it names") {
    const json j = json::parse(ask({"--best-of", "3", "--seed", "7", "--json"}).out);
    REQUIRE(j["alternatives"].size() == 3);
    const std::string seed = cat(j["alternatives"][0]["seed"].get<uint64_t>());
    CHECK(ask({"--seed", seed}).out == j["text"].get<std::string>());
    const ProcessResult r =
        nibble_cli({"run", "-p", "Tell me a story.", "-n", "12", "--best-of", "3", "--seed", "7"});
    CHECK(r.out == j["text"].get<std::string>());
    CHECK(r.err.find("best of 3: seed " + seed) != std::string::npos);
}

TEST_CASE("run: many prompts, each with its own beams") {
    const Scratch s;
    const std::string file = s.file("p.txt", "Tell me a story.\nWho are you?\n");
    std::string expected;
    for (const char* p : {"Tell me a story.", "Who are you?"})
        expected += nibble_cli({"run", "-p", p, "-n", "12", "-q", "--beams", "3"}).out + "\n";
    CHECK(nibble_cli({"run", "--prompts", file, "-n", "12", "-q", "--beams", "3"}).out == expected);
}

TEST_CASE("run: what a choice among answers cannot be combined with is refused, settings give way") {
    check_refused(ask({"--beams", "2", "--temp", "0.5"}), 2, "--temp");
    check_refused(ask({"--beams", "2", "--best-of", "2"}), 2, "--best-of");
    check_refused(ask({"--beams", "2", "--jsonl"}), 2, "--beams");
    check_refused(ask({"--best-of", "2", "--jsonl"}), 2, "--best-of");
    check_refused(ask({"--length-penalty", "2"}), 2, "--beams");
    check_refused(ask({"--best-of", "2", "--temp", "0"}), 2, "temperature 0");
    check_refused(ask({"--beams", "0"}), 2, "--beams");
    check_refused(ask({"--beams", "65"}), 2, "--beams");
    const Scratch s;
    ::setenv("NIBBLE_CONFIG", s.file("config.toml", "[run]\ntemp = 0.3\nbest-of = 2\n").c_str(), 1);
    CHECK(ask({"--beams", "2"}).code == 0);
    CHECK(ask({"--jsonl"}).code == 0);
    ::unsetenv("NIBBLE_CONFIG");
}
