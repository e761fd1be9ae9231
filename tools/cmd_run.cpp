// nibble run: continues a prompt and streams the text to stdout, statistics to stderr.
// Ctrl-C ends the answer, flushes what was generated and exits with 130.
#include <chrono>
#include <csignal>
#include <cstdio>

#include <sys/resource.h>

#include "tools/options.h"

namespace nibble {
namespace {

// A signal handler can reach nothing else.
volatile std::sig_atomic_t interrupted = 0;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

struct RunCommand {
    ModelOption model;
    PromptOption prompt;
    RunOptions options;
    SamplingOptions sampling;
    int64_t n = -1;
    std::vector<std::string> stop;
    bool raw = false, quiet = false, ignore_eos = false, special = false;

    Result<int> operator()() const;
    Result<Finish> generate(Engine& engine, Request request, const SamplerParams& params,
                            double load_seconds) const;
};

void print_statistics(const Engine& engine, size_t allocated, int64_t prompt, double prompt_seconds,
                      int64_t generated, double seconds, double first, double load, uint64_t seed) {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto rate = [](int64_t n, double s) { return s > 0 ? static_cast<double>(n) / s : 0.0; };
    std::fprintf(
        stderr,
        "prompt %lld tokens, %.1f tokens/s | generated %lld tokens, %.1f tokens/s | first token %.1f ms, "
        "load %.1f ms | cache and activations %.1f MiB, peak memory %.1f MiB | seed %llu\n",
        static_cast<long long>(prompt), rate(prompt, prompt_seconds), static_cast<long long>(generated),
        rate(generated - 1, seconds), first * 1e3, load * 1e3, static_cast<double>(allocated) / (1 << 20),
        static_cast<double>(usage.ru_maxrss) / 1024, static_cast<unsigned long long>(seed));
    (void)engine;
}

Result<Finish> RunCommand::generate(Engine& engine, Request request, const SamplerParams& params,
                                    double load) const {
    const auto n_prompt = static_cast<int64_t>(request.prompt.size());
    const RequestId id = NIBBLE_TRY(engine.submit(std::move(request)));
    const Clock::time_point start = Clock::now();
    Clock::time_point first = start;
    int64_t generated = 0;
    Finish finish = Finish::none;
    while (finish == Finish::none) {
        if (interrupted) engine.cancel(id);
        const StepReport report = NIBBLE_TRY(engine.step());
        for (const Event& e : report.events) {
            if (e.token >= 0 && ++generated == 1) first = Clock::now();
            std::fwrite(e.text.data(), 1, e.text.size(), stdout);
            finish = e.finish;
        }
        if (std::fflush(stdout) != 0) return Error{ErrorCode::io, "stdout", "cannot be written", ""};
    }
    if (quiet) return finish;
    if (isatty(STDOUT_FILENO)) std::fputc('\n', stdout), std::fflush(stdout);
    const double to_first = std::chrono::duration<double>(first - start).count();
    print_statistics(engine, engine.runner().allocated_bytes(), n_prompt, to_first, generated,
                     seconds_since(first), to_first, load, *params.seed);
    if (finish == Finish::context)
        std::fprintf(stderr, "nibble: the context of %d tokens is full (give a larger --ctx)\n",
                     engine.ctx());
    return finish;
}

Result<int> RunCommand::operator()() const {
    if (n < -1)
        return Error{ErrorCode::invalid_argument, "-n", cat(n, " is not a number of tokens"),
                     "give 0 or more"};
    const SamplerParams params = NIBBLE_TRY(sampling.params());
    for (const std::string& warning : conflicts(params))
        std::fprintf(stderr, "nibble: warning: %s\n", warning.c_str());
    const EngineConfig config = NIBBLE_TRY(options.config());
    const std::string text = NIBBLE_TRY(prompt.read());
    const Clock::time_point start = Clock::now();
    const auto backends = NIBBLE_TRY(options.backends());
    const auto list = pointers(backends);
    Engine engine = NIBBLE_TRY(Engine::load(NIBBLE_TRY(model.path()), config, list));
    const double load = seconds_since(start);
    for (const std::string& note : engine.runner().model().notes)
        std::fprintf(stderr, "nibble: note: %s\n", note.c_str());

    Request request;
    EncodeOptions encode;
    encode.parse_special = special;
    request.prompt = engine.tokenizer().encode(text, encode);
    request.sampling = params;
    request.max_tokens = n;
    request.stop = stop;
    request.ignore_eos = ignore_eos;
    std::signal(SIGINT, [](int) { interrupted = 1; });
    const Finish finish = NIBBLE_TRY(generate(engine, std::move(request), params, load));
    return finish == Finish::cancelled ? exit_interrupted : exit_ok;
}

std::function<Result<int>()> setup(CLI::App& app) {
    auto c = std::make_shared<RunCommand>();
    c->model.add(app);
    c->prompt.add(app);
    app.add_option("-n,--n-predict", c->n,
                   "tokens to generate (default: until the text or the context ends)");
    app.add_option("--stop", c->stop, "end before this text; may be repeated")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->allow_extra_args(false);
    app.add_flag("--raw", c->raw, "no chat template (the default)");
    app.add_flag("--special", c->special, "special tokens in the prompt are parsed, not taken as text");
    app.add_flag("--ignore-eos", c->ignore_eos, "never end the turn: tokens that would are not chosen");
    app.add_flag("-q,--quiet", c->quiet, "no statistics on stderr");
    c->options.add(app);
    c->sampling.add(app);
    app.footer(
        "Examples:\n  nibble run -p \"Once upon a time\" -n 100\n  echo \"The King said\" | nibble run "
        "--temp 0 -q");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command run_command;
const Command run_command{"run", "Continue a prompt", setup};

}  // namespace nibble
