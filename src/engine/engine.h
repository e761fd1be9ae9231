// Engine: requests in, tokens and text out. A batch is its only unit of work; one sequence is a batch of one.
// submit() any number of requests, then step() until idle(); nothing runs between the calls.
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
};

class Engine {
  public:
    static Result<Engine> load(const std::filesystem::path& path, EngineConfig config,
                               std::span<Backend* const> backends);
    Engine(Engine&&) noexcept;
    Engine& operator=(Engine&&) noexcept;
    ~Engine();

    // Errors: an empty prompt, one that does not fit the context (both numbers), bad sampling values.
    Result<RequestId> submit(Request request);
    void cancel(RequestId request);  // its end is reported by the next step
    bool idle() const;

    // Runs one mixed batch. Each running request yields at most one token.
    Result<StepReport> step();

    // A grammar over this model's vocabulary, for requests. An Error if no token can begin what it asks for.
    Result<std::shared_ptr<Constraint>> constraint(Grammar grammar);

    const Tokenizer& tokenizer() const;
    const ModelSpec& spec() const;
    ModelRunner& runner();  // for scoring text and for statistics
    int32_t ctx() const;

  private:
    struct State;
    explicit Engine(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace nibble
