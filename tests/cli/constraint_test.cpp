// --json-schema, --grammar and --regex as scripts meet them.
// The answers are checked, and the one line that a refused constraint gives.
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;

TEST_CASE("run: an answer that is cut before its constraint is met is a failure") {
    const auto run = [](const char* n, const char* regex) {
        return nibble_cli({"run", "--raw", "-q", "-p", "The fox", "--seed", "1", "-n", n, "--regex", regex});
    };
    const ProcessResult cut = run("2", "[a-z]{40}");
    CHECK(cut.code == 1);
    CHECK(!cut.out.empty());
    CHECK(cut.err.find("cut at -n before it was complete") != std::string::npos);
    CHECK(run("2", "[a-z ]*").code == 0);  // what there is matches
    const auto stopped = [](const char* regex) {
        return nibble_cli({"run", "--raw", "-q", "-p", "The fox", "--seed", "1", "-n", "60", "--stop", "e",
                           "--regex", regex});
    };
    const ProcessResult by_stop = stopped("[a-z ]{50}");
    CHECK(by_stop.code == 1);
    CHECK(stopped("[a-z ]*").code == 0);  // within a token, too
    CHECK(by_stop.err.find("cut by a stop string before it was complete") != std::string::npos);
    check_refused(nibble_cli({"run", "-q", "hi", "--regex", ""}), 2, "--regex: is empty");
    const Scratch scratch;
    const std::string schema = scratch.file("s.json", R"({"type":"string",})");
    check_refused(nibble_cli({"run", "-q", "hi", "--json-schema", schema}), 2, "wrong at byte 18");
}

TEST_CASE("run: answers keep to a schema, a grammar, an expression") {
    const Scratch scratch;
    const std::string schema =
        scratch.file("schema.json", R"({"type":"object","properties":{"name":{"type":"string","maxLength":10},
                          "age":{"type":"integer","minimum":1,"maximum":99}},"required":["name","age"]})");
    for (const char* seed : {"1", "2", "3"}) {
        const ProcessResult r =
            nibble_cli({"run", "--raw", "-q", "-p", "The fox", "--json-schema", schema, "--seed", seed});
        INFO(r.out << r.err);
        REQUIRE(r.code == 0);
        const auto v = nlohmann::json::parse(r.out, nullptr, false);
        REQUIRE(v.is_object());
        CHECK(v.at("name").is_string());
        CHECK((v.at("age") >= 1 && v.at("age") <= 99));
    }
    const std::string grammar = scratch.file("g.gbnf", "root ::= (\"fox\" | \"crow\") \" \" [0-9]{2}\n");
    const ProcessResult g =
        nibble_cli({"run", "--raw", "--json", "-q", "-p", "The", "--grammar", grammar, "--temp", "0"});
    REQUIRE(g.code == 0);
    const auto v = nlohmann::json::parse(g.out, nullptr, false);
    REQUIRE(v.is_object());
    CHECK(v.at("finish") == "complete");
    const auto text = v.at("text").get<std::string>();
    CHECK((text.starts_with("fox ") || text.starts_with("crow ")));
    const ProcessResult piped =
        nibble_cli({"run", "--raw", "--json", "-q", "-p", "The", "--grammar", "-", "--temp", "0"},
                   *read_text_file(grammar));
    CHECK(nlohmann::json::parse(piped.out, nullptr, false)["text"] == text);
    check_refused(nibble_cli({"run", "-p", "x", "--grammar", "-"}, "root ::= ("), 2, "standard input: ");
    check_refused(nibble_cli({"run", "-f", "-", "--grammar", "-"}, "root ::= \"a\""), 2, "standard input");
    const ProcessResult e = nibble_cli({"run", "--raw", "-q", "-p", "Call", "--regex", "\\d{3}-\\d{4}"});
    CHECK(e.code == 0);
    REQUIRE(e.out.size() == 8);
    CHECK(e.out[3] == '-');
}

TEST_CASE("run: constraints that cannot be met are refused before a model is loaded") {
    const Scratch scratch;
    check_refused(nibble_cli({"run", "-p", "x", "--regex", "(?=a)"}), 2, "look-around is not supported");
    check_refused(nibble_cli({"run", "-p", "x", "--json-schema", scratch.file("s", "{\"not\":{}}")}), 2,
                  "'not' is not supported");
    check_refused(
        nibble_cli({"run", "-p", "x", "--grammar", scratch.file("g", "root ::= root \"a\" | \"b\"")}), 2,
        "begins with itself");
    check_refused(nibble_cli({"run", "-p", "x", "--grammar", (scratch.dir / "none").string()}), 1, "none");
    const std::string marked = scratch.file("m", "\xEF\xBB\xBFroot ::= \"fox\"\n");
    CHECK(nibble_cli({"run", "-q", "--raw", "-p", "The", "--grammar", marked}).out == "fox");
    check_refused(nibble_cli({"run", "-p", "x", "--regex", "a", "--grammar", "g"}), 2, "excludes");
}
