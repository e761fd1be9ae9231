// bench, synth, plan and inspect --system: what they print holds together, and random models really run.
// Speeds are not judged here.
#include <cmath>
#include <filesystem>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "tests/cli/process.h"

using namespace nibble;

namespace {

// A shape small enough to make and run at once; 256 columns hold every format's blocks.
const std::vector<std::string> tiny = {"--shape", "llama-3.2-1b", "--layers", "2", "--embd",     "256",
                                       "--ff",    "512",          "--heads",  "4", "--kv-heads", "2",
                                       "--vocab", "4200"};

std::vector<std::string> with(std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
}

}  // namespace

TEST_CASE("bench: random weights of every recipe run; bytes and rates agree with each other") {
    for (const char* type : {"int8", "int4", "nf4", "bf16", "iq2_xs", "iq1_m"}) {
        INFO(type);
        const ProcessResult r = nibble_cli(with({"bench", "--json", "--type", type, "-p", "40", "-n", "3",
                                                 "-d", "0,64", "--sequences", "1,2", "-r", "2"},
                                                tiny));
        REQUIRE(r.code == 0);
        const auto j = nlohmann::json::parse(r.out);
        CHECK(j["bandwidth_gbps"].get<double>() > 0);
        REQUIRE(j["results"].size() == 8);
        for (const auto& row : j["results"]) {
            CHECK(row["tokens_per_second"].get<double>() > 0);
            CHECK(row["seconds"].size() == 2);
            if (row["test"] == "prompt") continue;
            const double bytes = j["weight_bytes"].get<double>() / row["sequences"].get<double>() +
                                 j["kv_bytes_per_token"].get<double>() * (row["depth"].get<double>() + 1.5);
            CHECK(row["bytes_per_token"].get<double>() == doctest::Approx(bytes));
            CHECK(row["achieved_gbps"].get<double>() ==
                  doctest::Approx(bytes * row["tokens_per_second"].get<double>() / 1e9));
            CHECK(row["bandwidth_gbps"].get<double>() > 0);
            CHECK(row["bandwidth_share"].get<double>() > 0);
        }
    }
}

TEST_CASE("bench: products are counted by the rows that they are computed for") {
    // Of two layers; of the last one what follows the keys and values is needed for the last row alone.
    const double qkv = 256.0 * 256 + 2 * 128.0 * 256, rest = 256.0 * 256 + 3 * 512.0 * 256,
                 output = 4200.0 * 256, all = 2 * qkv + 2 * rest + output;
    const ProcessResult r = nibble_cli(with({"bench", "--json", "-p", "64", "-n", "4", "-r", "1"}, tiny));
    REQUIRE(r.code == 0);
    const auto results = nlohmann::json::parse(r.out)["results"];
    REQUIRE(results.size() == 2);
    for (const auto& row : results) {
        const double each =
            row["multiply_adds_per_second"].get<double>() / row["tokens_per_second"].get<double>();
        const double expected = row["test"] == "prompt" ? 2 * qkv + rest + (rest + output) / 64 : all;
        CHECK(each == doctest::Approx(expected));
    }
}

TEST_CASE("bench: of every shape a small model runs") {
    const std::string help = nibble_cli({"bench", "--help"}).out;
    struct Case {
        const char *name, *layers;
    };
    for (const Case& c : {Case{"qwen2.5-0.5b", "2"},
                          {"mixtral-8x7b", "2"},
                          {"qwen3-30b-a3b", "2"},
                          {"qwen3.5-4b", "4"},
                          {"qwen3.5-35b-a3b", "4"},
                          {"lfm2-1.2b", "3"},
                          {"lfm3-1.7b", "5"},
                          {"qwen3-next-80b-a3b", "4"},
                          {"nemotron-3-nano-30b-a3b", "7"},
                          {"gpt-oss-20b", "2"},
                          {"muse-glimmer-30b", "4"},
                          {"glm-4.7-flash", "2"},
                          {"gemma-4-e4b", "14"}}) {
        INFO(c.name);
        CHECK(help.find(c.name) != std::string::npos);
        const ProcessResult r =
            nibble_cli({"bench", "--shape", c.name, "--layers", c.layers, "--embd", "256", "--ff", "64",
                        "--vocab", "4200", "-p", "9", "-n", "2", "-r", "1"});
        CHECK_MESSAGE(r.code == 0, r.err);
    }
}

TEST_CASE("bench: the guesses of assistants and guests are made, and nothing else's") {
    const std::string models = cat(NIBBLE_SOURCE_DIR, "/tests/golden/models/");
    for (const std::string model : {"gemma4_tales", "muse_glimmer", "qwen3_tales"}) {
        INFO(model);
        const ProcessResult r =
            nibble_cli({"bench", "-m", models + model, "--draft-model", models + model + "/assistant", "-p",
                        "0", "-n", "8", "--guess", "0,2", "--sequences", "1,2", "-r", "1", "--json"});
        REQUIRE_MESSAGE(r.code == 0, r.err);
        CHECK(nlohmann::json::parse(r.out)["results"].size() == 4);
    }
    const ProcessResult r = nibble_cli({"bench", "-m", models + "qwen3_tales", "--draft-model",
                                        models + "qwen3", "-p", "0", "-n", "2", "--guess", "2"});
    CHECK(r.code == 1);
    CHECK(r.err.find("is a model by itself") != std::string::npos);
    const ProcessResult idle = nibble_cli({"bench", "--draft-model", models + "qwen3", "-p", "8"});
    CHECK(idle.code == 2);
    CHECK(idle.err.find("add --guess") != std::string::npos);
}

TEST_CASE("bench: layers that share keys and values scale with the shape") {
    const std::vector<std::string> small = {"--shape", "gemma-4-e2b", "--embd", "64",    "--ff",
                                            "96",      "--vocab",     "4200",   "--json"};
    const ProcessResult r = nibble_cli(with({"bench", "--layers", "10", "-p", "40", "-n", "2"}, small));
    REQUIRE_MESSAGE(r.code == 0, r.err);
    const auto plan = nibble_cli(with({"plan", "--layers", "10"}, small));
    REQUIRE(plan.code == 0);
    // Five layers have keys and values, one of them with heads of 512 columns.
    CHECK(nlohmann::json::parse(r.out)["kv_bytes_per_token"] == 2 * (4 * 2 * 256 + 2 * 512));
    const ProcessResult few = nibble_cli(with({"bench", "--layers", "7"}, small));
    CHECK(few.code != 0);
    CHECK(few.err.find("has no keys to attend to") != std::string::npos);
}

TEST_CASE("synth: the file is the same for any number of threads, and runs") {
    const auto folder = std::filesystem::temp_directory_path() / "nibble_synth_test";
    std::filesystem::create_directories(folder);
    const std::string a = (folder / "a.gguf").string(), b = (folder / "b.gguf").string();
    REQUIRE(nibble_cli(with({"synth", "--type", "int4", "-t", "1", "-o", a}, tiny)).code == 0);
    REQUIRE(nibble_cli(with({"synth", "--type", "int4", "-t", "3", "-o", b}, tiny)).code == 0);
    CHECK(*read_text_file(a) == *read_text_file(b));
    const ProcessResult again = nibble_cli(with({"synth", "--type", "int4", "-o", a}, tiny));
    CHECK(again.code == 2);
    CHECK(again.err.find("--force") != std::string::npos);
    const ProcessResult run = nibble_cli({"run", "-m", a, "-p", "Once", "-n", "4", "-q", "--check-nan"});
    CHECK(run.code == 0);

    // What plan says of the file is what inspect finds in it.
    const ProcessResult plan = nibble_cli({"plan", a, "--ctx", "128", "--json"});
    REQUIRE(plan.code == 0);
    const auto j = nlohmann::json::parse(plan.out);
    CHECK(j["kv_bytes_per_token"] == 2 * 2 * 2 * 64 * 2);  // layers, k and v, kv heads, head_dim, f16
    CHECK(j["kv_bytes"] == 128 * 2 * 2 * 2 * 64 * 2);
    CHECK(j["kv_bytes_by_type"]["int4"].get<int>() * 32 == j["kv_bytes"].get<int>() * 9);
    CHECK(j["fits"] == true);
    CHECK(j["n_ctx_train"] == 131072);
    CHECK(nibble_cli({"plan", a}).out.find("made for 131072 tokens") != std::string::npos);
    // The largest context is the same whatever context is asked for, and it is where the memory ends.
    const auto at = [&](double ctx) {
        return nlohmann::json::parse(
            nibble_cli({"plan", "-m", a, "--json", "--ctx", std::to_string(std::llround(ctx))}).out);
    };
    const double largest = at(1e9)["largest_ctx"];
    for (const double ctx : {64.0, 4096.0, 100'000.0})
        CHECK(largest == doctest::Approx(at(ctx)["largest_ctx"].get<double>()).epsilon(0.2));
    CHECK(at(0.8 * largest)["fits"] == true);
    CHECK(at(1.2 * largest)["fits"] == false);
    const auto from_shape = nlohmann::json::parse(
        nibble_cli(with({"plan", "--type", "int4", "--ctx", "128", "--json"}, tiny)).out);
    CHECK(from_shape["weights_bytes"] == j["weights_bytes"]);
    std::filesystem::remove_all(folder);
}

TEST_CASE("shapes that cannot be are refused") {
    const auto refused = [](const std::vector<std::string>& args, std::string_view mentions) {
        const ProcessResult r = nibble_cli(args);
        INFO(r.err);
        CHECK(r.code == 2);
        CHECK(r.out.empty());
        CHECK(r.err.find(mentions) != std::string::npos);
    };
    refused({"bench", "-p", "0", "-n", "0"}, "nothing to measure");
    refused({"plan", "--shape", "llama-3.2-1b", "--layers", "4194304"}, "not in range 1 to 1024");
    refused({"bench", "--shape", "llama-9"}, "llama-3.1-8b");
    refused({"synth", "--shape", "qwen3.5-0.8b", "--layers", "3", "-o", "x.gguf"}, "give 4 or more");
    refused({"bench", "--shape", "llama-3.2-1b", "--type", "int5"}, "int8");
    refused({"synth", "--shape", "llama-3.2-1b", "--layers", "1", "--embd", "64", "--ff", "64", "--vocab",
             "10", "-o", "/tmp/never.gguf"},
            "--vocab");
}

TEST_CASE("inspect --system names one chosen set of kernels") {
    const ProcessResult r = nibble_cli({"inspect", "--system", "--json"});
    REQUIRE(r.code == 0);
    const auto j = nlohmann::json::parse(r.out);
    int chosen = 0;
    for (const auto& isa : j["instruction_sets"])
        if (isa["chosen"] == true) {
            ++chosen;
            CHECK(isa["available"] == true);
        }
    CHECK(chosen == 1);
    CHECK(j["threads"].get<int>() >= 1);
}
