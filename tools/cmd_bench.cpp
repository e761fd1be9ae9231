// nibble bench: prompt processing and generation of a model, beside what the memory could give at best.
// A model file, or random weights of a known shape made in memory.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "ggml/base/thread_pool.h"
#include "src/eval/bench.h"
#include "tools/json_text.h"
#include "tools/options.h"
#include "tools/settings.h"
#include "tools/shape_options.h"

namespace nibble {
namespace {

struct BenchCommand {
    ModelOption model;
    ShapeOptions shape;
    RunOptions options;
    std::vector<int32_t> prompts{512}, generates{128}, depths{0}, batches{1}, guesses{0};
    std::string assistant;
    int32_t repetitions = 3;
    bool json = false;

    Result<int> operator()() const;
    std::vector<BenchCase> cases() const;
    Result<TensorFile> open() const;
};

std::vector<BenchCase> BenchCommand::cases() const {
    std::vector<BenchCase> list;
    for (const int32_t depth : depths)
        for (const int32_t batch : batches) {
            for (const int32_t n : prompts)
                if (n > 0) list.push_back({n, 0, depth, batch});
            for (const int32_t n : generates)
                for (const int32_t g : guesses)
                    if (n > 0) list.push_back({0, n, depth, batch, g});
        }
    return list;
}

Result<TensorFile> BenchCommand::open() const {
    if (!shape.name.empty()) return shape.model(Fill::random, options.threads);
    return TensorFile::open(NIBBLE_TRY(model.path()));
}

// What one token costs: weights once per step, the cache per token of context, a state to read and write.
struct Cost {
    double weight_bytes, kv_bytes, state_bytes, token_multiply_adds, output_multiply_adds;

    double multiply_adds(const BenchResult& r) const {  // of a token, on average
        return token_multiply_adds + output_multiply_adds * r.outputs / r.tokens;
    }
};

nlohmann::json to_json(const BenchResult& r, const Cost& cost) {
    const BenchCase& c = r.what;
    const bool prompt = c.prompt > 0;
    nlohmann::json j = {{"test", prompt ? "prompt" : "generation"},
                        {"tokens", prompt ? c.prompt : c.generate},
                        {"depth", c.depth},
                        {"sequences", c.batch},
                        {"tokens_per_second", r.rate()},
                        {"deviation", r.deviation()},
                        {"seconds", r.seconds},
                        {"multiply_adds_per_second", cost.multiply_adds(r) * r.rate()}};
    if (c.guesses > 0) {
        j["guesses"] = c.guesses;
        j["seconds_per_step"] = (1 + c.guesses) * c.batch / r.rate();
    }
    if (prompt || c.guesses > 0) return j;
    // A step reads all weights once, and each sequence's context as it grows.
    const double bytes =
        cost.weight_bytes / c.batch + cost.kv_bytes * (c.depth + 0.5 * c.generate) + 2 * cost.state_bytes;
    j["bytes_per_token"] = bytes;
    j["achieved_gbps"] = bytes * r.rate() / 1e9;
    double shares = 0;
    for (size_t i = 0; i < r.bandwidths.size(); ++i)
        if (r.bandwidths[i] > 0) shares += bytes * r.tokens / r.seconds[i] / r.bandwidths[i];
    j["bandwidth_gbps"] = r.bandwidth() / 1e9;
    j["bandwidth_share"] = shares / static_cast<double>(r.seconds.size());
    return j;
}

void print_row(const nlohmann::json& j) {
    std::string what = cat(j["test"].get<std::string>(), " ", j["tokens"].get<int>());
    if (j["depth"] > 0) what += cat(" at ", j["depth"].get<int>());
    if (j["sequences"] > 1) what += cat(" x ", j["sequences"].get<int>());
    if (j.contains("guesses")) what += cat(", guessing ", j["guesses"].get<int>());
    std::printf("%-28s %9.2f +- %-7.2f", what.c_str(), j["tokens_per_second"].get<double>(),
                j["deviation"].get<double>());
    if (j.contains("bytes_per_token"))
        std::printf(" %9.1f %7.1f %6.0f %%", j["bytes_per_token"].get<double>() / 1e6,
                    j["achieved_gbps"].get<double>(), 100 * j["bandwidth_share"].get<double>());
    else
        std::printf(" %9s %7s %8s", "", "", "");
    std::printf(" %9.1f\n", j["multiply_adds_per_second"].get<double>() / 1e9);
    std::fflush(stdout);
}

Result<int> BenchCommand::operator()() const {
    const std::vector<BenchCase> list = cases();
    if (list.empty())
        return Error{ErrorCode::invalid_argument, "-p and -n", "are both 0: there is nothing to measure", ""};
    const bool guesses = std::ranges::any_of(list, [](const BenchCase& c) { return c.guesses > 0; });
    if (!assistant.empty() && !guesses)
        return Error{ErrorCode::invalid_argument, "--draft-model", "guesses nothing here",
                     "add --guess and -n, the numbers of tokens to guess in a step and to generate"};
    RunnerConfig config = NIBBLE_TRY(options.config()).runner;
    config.ctx = 1;
    for (const BenchCase& c : list) {
        config.ctx = std::max(config.ctx, c.depth + std::max(c.prompt, c.generate + c.guesses));
        config.max_sequences = std::max(config.max_sequences, c.batch);
        config.max_outputs = std::max(config.max_outputs, c.batch * (1 + c.guesses));
        if (c.guesses > 0) config.guess_outputs = config.max_outputs;
    }
    config.predict = config.guess_outputs > 0 && assistant.empty();
    if (!assistant.empty()) config.assistant = NIBBLE_TRY(resolve_model(assistant));
    if (!config.assistant.empty()) config.ctx += most_block_rows;  // a block has its place, too
    const auto backends = NIBBLE_TRY(options.backends());
    const auto pointers_to = pointers(backends);
    TensorFile file = NIBBLE_TRY(open());
    const std::string name = file.path().filename().string();
    const auto start = std::chrono::steady_clock::now();
    ModelRunner runner = NIBBLE_TRY(ModelRunner::load(std::move(file), config, pointers_to));
    const double load = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::string where = placement_text(runner.memory(), pointers_to);
    const MatmulCost matmuls = matmul_cost(runner.program());
    const Cost cost{static_cast<double>(matmuls.bytes),
                    static_cast<double>(runner.memory().kv_bytes_read_per_token),
                    static_cast<double>(runner.memory().state_bytes), matmuls.token_multiply_adds,
                    matmuls.output_multiply_adds};
    const auto bandwidth_now = [&] { return read_bandwidth(runner.memory(), pointers_to); };
    const double bandwidth = bandwidth_now();
    if (!json) {
        std::printf(
            "%s\n%s\nload %.2f s of which packing %.2f s, weights %.1f MB, read bandwidth %.1f GB/s\n\n",
            name.c_str(), where.c_str(), load, runner.pack_seconds(), cost.weight_bytes / 1e6,
            bandwidth / 1e9);
        std::printf("%-28s %9s    %-7s %9s %7s %8s %9s\n", "test", "tokens/s", "", "MB/token", "GB/s",
                    "of read", "GMAC/s");
    }
    std::vector<nlohmann::json> rows;
    for (const BenchCase& c : list) {
        const BenchResult r = NIBBLE_TRY(c.prompt > 0 ? run_bench(runner, c, repetitions)
                                                      : run_bench(runner, c, repetitions, bandwidth_now));
        rows.push_back(to_json(r, cost));
        if (!json) print_row(rows.back());
    }
    if (!json) return exit_ok;
    const nlohmann::json out = {
        {"model", name},
        {"device", where},
        {"gpu_layers", runner.memory().gpu_layers},
        {"n_layers", runner.memory().n_layers},
        {"threads", options.threads ? options.threads : ThreadPool::default_threads()},
        {"load_seconds", load},
        {"pack_seconds", runner.pack_seconds()},
        {"weight_bytes", cost.weight_bytes},
        {"kv_bytes_per_token", runner.memory().kv_bytes_per_token},
        {"state_bytes", cost.state_bytes},
        {"bandwidth_gbps", bandwidth / 1e9},
        {"results", rows}};
    std::printf("%s\n", json_text(out, 2).c_str());
    return exit_ok;
}

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<BenchCommand>();
    c->model.add(flags);
    c->shape.add(flags);
    c->shape.add_seed(flags);
    const auto numbers = [&](const char* flag, std::vector<int32_t>& list, const char* what, int32_t least) {
        flags.value(flag, list, what).comma_separated().range(least, 1 << 22).show_default();
    };
    numbers("-p,--prompt-tokens", c->prompts, "prompt lengths, separated by commas; 0: none", 0);
    numbers("-n,--n-predict", c->generates, "tokens to generate; 0: none", 0);
    numbers("-d,--depth", c->depths, "tokens already in the context", 0);
    numbers("--sequences", c->batches, "sequences side by side", 1);
    numbers("--guess", c->guesses, "tokens guessed in a step: the speed if all are right", 0);
    flags.value("--draft-model", c->assistant, "an assistant of the model: what its guesses cost counts")
        .type_name("MODEL");
    flags.value("-r,--repetitions", c->repetitions, "timed repetitions").range(1, 1000).show_default();
    flags.on("--json", c->json, "one JSON object");
    c->options.add(flags);
    c->options.add_batch(flags);
    flags.examples(
        "  nibble bench -m model.gguf -d 0,4096\n"
        "  nibble bench --shape llama-3.1-8b --type int4 -p 512 -n 64");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command bench_command;
const Command bench_command{"bench", "Measure how fast a model runs here", setup};

}  // namespace nibble
