// Engine: requests in, tokens and text out. A batch is its only unit of work; one sequence is a batch of one.
// submit() any number of requests, then step() until idle(). Between the calls nothing runs, but for a device
// that draws tokens by itself: there the next step may be on its way.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/engine/model_runner.h"
#include "src/engine/request.h"
#include "src/text/tokenizer.h"

namespace nibble {

struct EngineConfig {
    RunnerConfig runner;
    bool check_nan = false;    // stop with the name of the layer that yields a NaN
    bool prefix_cache = true;  // reuse keys and values of equal prompt prefixes
    // Every prompt begins with the one before it: the state that serves the next one is kept behind the whole
    // of it instead of shortly before its end, where other texts part.
    bool prompts_grow = false;
    // How many tokens of a running answer may be guessed and checked in one step; 0: none; -1:
    // default_draft_tokens where there is no backend but the processor's, or a draft model, else none. The
    // texts are the same. On a device that draws tokens by itself, steps then wait for one another. Nothing
    // is guessed with check_nan, which looks at every row.
    int32_t draft_tokens = 0;
    std::filesystem::path draft_model;  // guesses where the text repeats nothing; empty: none does
    // How likely a guess must be to be made; 0: as likely as what it costs asks for.
    double least_likely = 0;
};
// While memory is the limit, so many rows beside one cost a step little.
inline constexpr int32_t default_draft_tokens = 12, most_draft_tokens = 31;

// Replaces a draft_tokens of -1, and asks for the outputs that guesses need. Engine::load() does it; for
// forecasts.
void settle_guesses(EngineConfig& config, size_t n_backends);

// Keys and values of a token prefix, in host memory: of each KV group its pages one after the other, the last
// one used in part.
struct PrefixView {
    std::span<const Token> tokens;
    std::vector<std::span<const std::byte>> pages;  // [kv group]
};
struct CachedPrefix {
    std::vector<Token> tokens;
    std::vector<std::vector<std::byte>> pages;
    PrefixView view() const { return {tokens, {pages.begin(), pages.end()}}; }
};

class Engine {
  public:
    static Result<Engine> load(const std::filesystem::path& path, EngineConfig config,
                               std::span<Backend* const> backends);
    Engine(Engine&&) noexcept;
    Engine& operator=(Engine&&) noexcept;
    ~Engine();

    // Errors: an empty prompt, one that does not fit the context (both numbers) or the vocabulary, bad
    // sampling values, more answers to choose from than sequences that fit a batch.
    Result<RequestId> submit(Request request);
    void cancel(RequestId request);  // its end is reported by the next step
    bool idle() const;

    // Runs one mixed batch. Each running request yields at most one token, and as many more as were guessed
    // rightly; one whose answer is chosen among several yields the answer at its end. After an Error every
    // request has ended and the engine is idle. A step that a backend was told to stop (CpuOptions::stop) is
    // as if it had not begun: cancel() what is not to go on.
    Result<StepReport> step();

    // A grammar over this model's vocabulary, for requests. An Error if no token can begin what it asks for.
    Result<std::shared_ptr<Constraint>> constraint(Grammar grammar);

    // How many tokens of a prompt would not be computed again; its last one always is.
    int32_t known(std::span<const Token> prompt);

    // The longest beginning of `tokens` that the cache still holds; and putting such a beginning into the
    // cache of an engine with the same model, cache types and page size, for the next request that begins
    // with it: whole, or its first n tokens, if no state is among it, which is of all of them; yielded is how
    // many were put there. Imports need an idle engine. Errors: sizes that do not fit, a prefix longer than
    // the context.
    Result<CachedPrefix> export_prefix(std::span<const Token> tokens);
    Result<void> import_prefix(const PrefixView& prefix);
    Result<size_t> import_beginning(const PrefixView& prefix, size_t n);

    const Tokenizer& tokenizer() const;
    const ModelSpec& spec() const;
    ModelRunner& runner();  // for scoring text and for statistics
    int32_t ctx() const;
    size_t allocated_bytes() const;  // as ModelRunner says, with the draft model's

  private:
    struct State;
    explicit Engine(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace nibble
