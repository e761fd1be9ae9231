// Flags that several subcommands have: which model, how to run it.
// Each struct adds its flags to a subcommand and turns them into what the engine wants.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/eval/scorer.h"
#include "tools/cli.h"
#include "tools/device_options.h"

namespace nibble {

// Where files that come with the program may be: beside the binary when installed, in the source tree when
// built there.
std::vector<std::filesystem::path> data_folders(std::string_view name, std::string_view in_source);

// A GGUF file to be written: not one that exists, unless `force`; not named like a part of a split model,
// which the name would be taken for.
Result<void> check_destination(const std::filesystem::path& path, bool force);

// `-m`, or the bundled model when it is not given.
struct ModelOption {
    std::string given;
    void add(Flags& flags);
    // Also without -m, for commands that are about a model. The flag is of what stands there.
    Flag add_subject(Flags& flags);
    Result<std::filesystem::path> path() const;
};

// How a model is run. A command has the flags that it obeys: add() those of every command, the others where
// they mean something.
struct RunOptions {
    int32_t ctx = 0;
    int32_t threads = 0;
    int32_t batch = 0;         // as RunnerConfig says
    int32_t draft_tokens = 0;  // as EngineConfig says
    std::string isa, kv_type, k_type, v_type, draft_model;
    bool check_nan = false, no_pack = false, deterministic = false;
    DeviceOptions device;
    void add(Flags& flags);
    void add_ctx(Flags& flags, const std::string& help);
    void add_batch(Flags& flags);
    void add_check_nan(Flags& flags);
    void add_all(Flags& flags);  // for commands that generate text
    Result<EngineConfig> config() const;
    // `stop`: see CpuOptions.
    Result<std::vector<std::unique_ptr<Backend>>> backends(std::function<bool()> stop = {}) const;
};

// Which device runs what: the processor, or a card and its layers.
std::string placement_text(const MemoryForecast& model, std::span<Backend* const> backends);

// What to tell of a context longer than the `n_ctx_train` tokens that the model was made for.
std::string beyond_training_text(int32_t n_ctx_train);

// On stderr: what the loaded model lacks, and that a card could not hold all of it although nobody said how
// much.
void print_notes(Engine& engine, const RunOptions& options, std::span<Backend* const> backends);

std::vector<Backend*> pointers(const std::vector<std::unique_ptr<Backend>>& backends);

// One flag per sampling parameter, from the table in src/sample.
struct SamplingOptions {
    std::vector<std::pair<std::string_view, std::string>> given;  // key, text
    void add(Flags& flags);
    Result<SamplerParams> params() const;  // a missing seed is drawn
};

// A text in windows of --ctx tokens, all of whose logits are wanted: perplexity, calibration.
struct WindowOptions {
    static constexpr const char* ctx_help = "tokens of a window [512]";
    std::string file;
    int32_t stride = 0, most = 0;
    void add(Flags& flags);
    void set_sizes(RunnerConfig& config) const;  // one window per batch
    Result<std::vector<Window>> cut(const Engine& engine) const;
};

}  // namespace nibble
