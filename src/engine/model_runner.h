// ModelRunner: a loaded model with its paged cache; runs one batch at a time and gives logits.
// Knows tensors and backends, but neither text nor requests: those are the Engine's.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "src/engine/batch.h"
#include "src/engine/predictor.h"
#include "src/model/opened_model.h"
#include "src/sample/candidates.h"

namespace nibble {

struct RunnerConfig {
    int32_t ctx = 0;            // longest sequence in tokens; 0: the model's own, at most default_ctx
    int32_t max_sequences = 1;  // in one batch, and the number of full-length sequences the cache holds
    // Rows of one batch (a prefill chunk). 0: 512, or what keeps a GPU busy that has all layers and the
    // memory.
    int32_t batch_tokens = 0;
    int32_t max_outputs = 0;          // rows whose logits are wanted at once; 0: max_sequences
    int32_t guess_outputs = 0;        // the same with guesses; 0: nothing is guessed
    bool predict = false;             // with the layer that guesses further ahead, if the model has one
    std::filesystem::path assistant;  // a model that guesses for this one; empty: none does
    int32_t page_size = 32;
    Type k_type = Type::f16;
    Type v_type = Type::f16;
    Placement placement;      // empty: by gpu_layers
    int32_t gpu_layers = -1;  // with a second backend: how many of the last layers run there; -1: what fits
};
inline constexpr int32_t default_ctx = 8192;
// States beyond those of running sequences, which have a second one where guesses are made: of prefixes that
// may be asked for again.
inline constexpr int32_t kept_states = 5;

// Exact bytes, known before anything is loaded.
struct MemoryForecast {
    std::vector<DeviceFootprint> devices;
    size_t kv_bytes_per_token = 0;
    size_t kv_bytes_read_per_token = 0;  // by a later token: layers may share keys and values
    size_t matmul_bytes = 0;             // weights that every step reads
    size_t predictor_bytes = 0;  // that a token guessed by the model's predictor takes; 0: it has none
    size_t expert_bytes = 0;     // of them, those that another row may have others of
    size_t state_bytes = 0;      // of one sequence, which each of its tokens reads and writes
    int32_t n_states = 0;        // so many there is room for
    int32_t ctx = 0;
    int32_t n_ctx_train = 0;               // what the model was made for; 0: not known
    int32_t n_layers = 0, gpu_layers = 0;  // of the model; of them on the second backend
};

// Bytes of the weights that the program's matmuls read, and their multiply-adds: of every token, and of an
// output row beside.
struct MatmulCost {
    size_t bytes = 0, expert_bytes = 0;
    double token_multiply_adds = 0, output_multiply_adds = 0;
};
MatmulCost matmul_cost(const Program& program);

class ModelRunner {
  public:
    // Checks every tensor against the hyperparameters, then the memory, then loads. The backends must outlive
    // the runner.
    static Result<ModelRunner> load(TensorFile file, RunnerConfig config, std::span<Backend* const> backends);
    // The same checks and the numbers, loading nothing.
    static Result<MemoryForecast> forecast(TensorFile file, RunnerConfig config,
                                           std::span<Backend* const> backends);

    // Logits of batch.out_rows, [out_rows x n_vocab]; valid until the next run, which may overwrite them.
    // The lengths of the batch's lists and its token ids are checked; pages, slots and positions come from
    // the engine's tables and are taken as they are.
    Result<std::span<float>> run(const Batch& batch, Observer* observer = nullptr);

    // The same in parts, for who can do without the logits: they may have to come from a device.
    Result<void> step(const Batch& batch, Observer* observer = nullptr);
    Result<std::span<float>> logits();  // of the last step; the same memory for every call
    // The first tokens of an output row of the last step, as Candidates::begin_with_first takes them; none
    // where the logits are at hand anyway, or are not fit for a list.
    FirstTokens first_tokens(size_t row) const;
    bool lists_first_tokens() const { return runner_->has_output(io::shortlist); }

    // Whether the device draws tokens by itself, so that the next step can begin before they are known here.
    bool draws() const { return mailboxes_[0] != nullptr; }
    // Starts a step with draws and waits for nothing. drawn() waits for the tokens: of the last launch, or of
    // the one before. By output row; -1 where the device cannot tell: the step is to be repeated without it.
    Result<void> launch(const Batch& batch);
    Result<std::vector<Token>> drawn(int launches_ago);
    size_t launches() const { return launches_; }

    // What guesses the token after the next; null: nothing does. It is given hidden states, of which the last
    // step left one for each of its rows, [rows x n_embd], or of its output rows if the predictor does not
    // read all: side by side, where it reads what several layers say. Valid until the next step.
    Predictor* predictor() const { return predictor_.get(); }
    Result<std::vector<std::span<float>>> hidden();
    Result<void> copy_pages(std::span<const Batch::Copy> copies);  // at once, between steps

    const ModelSpec& spec() const { return model_->spec; }
    const OpenedModel& model() const { return *model_; }
    const RunnerConfig& config() const { return config_; }  // with the defaults filled in
    const MemoryForecast& memory() const { return forecast_; }
    const Program& program() const { return runner_->program(); }
    size_t allocated_bytes() const;  // really taken from the backends: cache, activations, inputs
    double pack_seconds() const { return pack_seconds_; }  // of load(): reading, packing and placing weights
    // Bytes of weights that are used from the file, because all of them packed would not fit the memory.
    size_t left_bytes() const { return weights_->packing().left_bytes; }
    int32_t n_pages() const { return n_pages_; }    // of each group of keys and values
    int32_t n_states() const { return n_states_; }  // of each group of states

    // A page of a KV group in host memory: keys, then values, layer by layer as the cache holds them. A
    // state's two parts likewise. `bytes` is page_bytes(group) long.
    size_t page_bytes(int32_t group) const;
    Result<void> read_page(int32_t group, int32_t page, std::span<std::byte> bytes) const;
    Result<void> write_page(int32_t group, int32_t page, std::span<const std::byte> bytes);
    // Tells models apart: names, types, shapes, metadata and samples of the weights. FNV-1a.
    uint64_t fingerprint() const;

  private:
    static Result<ModelRunner> prepare(TensorFile file, RunnerConfig config,
                                       std::span<Backend* const> backends);
    // The program over weights that are not placed yet: for a placement, and for the one that the
    // configuration asks for, which stays in config_.
    Result<Program> record_dry(const Placement& placement, std::span<Backend* const> backends);
    Result<void> open_assistant(const std::filesystem::path& path, int32_t ctx);
    Result<void> record_predictor(std::span<Backend* const> backends);
    std::vector<DeviceFootprint> footprint(const Program& main) const;  // with the predictor's
    bool fits(const Program& dry, const DeviceInfo& gpu, int32_t layers) const;
    Result<Program> place_layers(std::span<Backend* const> backends);
    // More rows per step, where that keeps the GPU busier and memory is left.
    Result<Program> widen_steps(Program dry, std::span<Backend* const> backends);
    // The first device whose memory is the host's; as many as there are: none.
    static size_t host_device(std::span<Backend* const> backends);
    void set_forecast(const Program& dry, std::span<Backend* const> backends);
    // Leaves weights in the file where they do not fit the memory packed.
    Result<void> fit_packed(std::span<Backend* const> backends);
    Result<void> check_memory(std::span<Backend* const> backends) const;
    Result<void> allocate_cache(std::span<Backend* const> backends);
    Backend& cache_backend(size_t layer, std::span<Backend* const> backends) const;
    // Lays the pages of all layers of a group into memory that they share, where they are alike.
    Result<void> share_cache(int32_t group, std::span<Backend* const> backends);
    Result<void> make_copy_runners(std::span<Backend* const> backends);
    Result<void> check(const Batch& batch) const;
    void fill_inputs(const Batch& batch);
    Result<void> start(const Batch& batch, Observer* observer);
    Result<void> allocate_drawn();
    Result<void> fetch_first_tokens(const Batch& batch);
    struct PagePart {
        Backend* backend = nullptr;
        const Tensor* cache = nullptr;
        std::byte* data = nullptr;
        size_t bytes = 0;
    };
    std::vector<PagePart> page_parts(int32_t group, int32_t page) const;

    std::unique_ptr<OpenedModel> model_;  // stable addresses: weights and programs point into these
    std::unique_ptr<WeightStore> weights_;
    std::unique_ptr<OpenedModel> assistant_;  // with its weights: null where none was asked for
    std::unique_ptr<WeightStore> assistant_weights_;
    RunnerConfig config_;
    MemoryForecast forecast_;
    double pack_seconds_ = 0;
    size_t most_packed_ = std::numeric_limits<size_t>::max();
    KvTensors kv_;
    std::vector<Buffer> cache_memory_;
    std::vector<PagePlaces> places_;  // by KV group
    std::vector<Backend*> backends_;
    int32_t n_pages_ = 0, n_states_ = 0;
    BatchShape limits_;
    std::unique_ptr<Runner> runner_;
    std::unique_ptr<Predictor> predictor_;
    std::vector<Runner> copy_runners_;  // one per KV group
    std::span<float> logits_;           // of the last step, once asked for
    struct RowList {
        std::vector<Candidate> tokens;
        TotalWeight total;
    };
    std::vector<RowList> first_tokens_;      // by output row
    std::unique_ptr<Mailbox> mailboxes_[2];  // of the launches in turn; null: the device does not draw
    size_t launches_ = 0;
    size_t rows_drawn_[2] = {};
};

}  // namespace nibble
