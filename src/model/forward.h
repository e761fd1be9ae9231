// The forward pass, written once for every architecture as straight-line code over a Builder.
// Blocks (src/model/blocks) record one mixer or feed-forward each through the Forward context.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/model/spec.h"
#include "src/model/weights.h"

namespace nibble {

// Keys and values of each layer, laid out as attention (ggml/ops/ops.h) wants them; of a layer with a state
// its two parts (KvLayer).
struct KvTensors {
    std::vector<Tensor> k, v;
    int32_t page_size = 32;
    bool rotate_keys = false;    // Hadamard transform before keys are rounded to few bits
    int64_t max_pages = 0;       // columns of the page table: pages of the longest sequence
    bool output_hidden = false;  // of output rows, the last hidden states are an output, too
    // f32 [outputs x 1]: the tokens that the device drew last, which the next step may take; no rows where it
    // draws none.
    Tensor drawn;
};

// Names of the program's inputs (i32, but for the predictor's hidden states) and outputs. Slots and page
// tables exist once per KV group; where it holds states there are no slots. Positions and rows of sequences
// exist for output rows, too, where these alone go through whole layers.
namespace io {
inline constexpr std::string_view tokens = "tokens", positions = "positions", seq_rows = "seq_rows",
                                  out_rows = "out_rows", logits = "logits", shortlist = "shortlist",
                                  weighed = "weighed", draws = "draws", hidden = "hidden", state = "state",
                                  query_positions = "query_positions", out_positions = "out_positions",
                                  out_seq_rows = "out_seq_rows";
std::string source(size_t i);  // what the i-th layer of ModelSpec::sources says of each row
std::string slots(int32_t group);
std::string page_table(int32_t group);
}  // namespace io

// What the blocks see while recording.
class Forward {
  public:
    Forward(Builder& b, const ModelSpec& spec, WeightStore& weights, const KvTensors& kv);

    // Records everything up to the logits; failures stick to the builder and to error(). Of a model with a
    // predictor the last hidden states of all rows are an output, too.
    Ref record();
    // The predictor instead: from the hidden states of rows and the tokens behind them (the inputs `hidden`
    // and `tokens`) to those that stand for the next position, of the output rows.
    void record_predictor();
    // The same of a model that guesses for `main`, given its embedding: to hidden states of the main model's
    // width, and states of its own (the output `state`). Its rows attend to what the cache has up to their
    // positions, and rotate by the input `query_positions`.
    void record_assistant(const ModelSpec& main, const Tensor& embedding);
    // Of a guest of `main`: what its layers read, from the input `hidden` of what main's sources say of each
    // row, side by side, to keys and values in the cache; and a block of rows, of which those that are wanted
    // become hidden states. Each row of it is a sequence by itself, that attends up to the block's last
    // position, and rotates by the input `query_positions`.
    void record_guest_reading(const ModelSpec& main);
    void record_guest_block(const ModelSpec& main, const Tensor& embedding);
    // Logits of the first n_tokens, from the input `hidden`: a row per output, of this model's width.
    void record_predictor_head(int32_t n_tokens);
    const Error& error() const { return error_; }

    Builder& builder() { return b_; }
    const ModelSpec& spec() const { return spec_; }
    const LayerSpec& layer_spec() const { return *layer_spec_; }
    const KvTensors& kv() const { return kv_; }
    int32_t layer() const { return b_.layer(); }
    int32_t cache_layer() const { return first_cache_layer_ + layer(); }  // of the current layer's own keys
    void label(std::string_view what);  // names the next instructions "blk.<layer>.<what>"

    // Weights of the current layer ("attn_q.weight" -> "blk.3.attn_q.weight") or of the model outside layers.
    // The shape is checked against the file; a required one that is missing is an Error with its name.
    Ref matrix(std::string_view name, int64_t rows, int64_t cols) {
        return weight(name, rows, cols, WeightUse::matmul, true);
    }
    Ref table(std::string_view name, int64_t rows, int64_t cols) {
        return weight(name, rows, cols, WeightUse::lookup, true);
    }
    Ref vector(std::string_view name, int64_t cols) { return weight(name, 1, cols, WeightUse::vector, true); }
    Ref optional_vector(std::string_view name, int64_t cols) {
        return weight(name, 1, cols, WeightUse::vector, false);
    }
    // A small matrix as f32, its rows one behind the other.
    Ref taps(std::string_view name, int64_t rows, int64_t cols) { return vector(name, rows * cols); }
    // Matrices of n experts one below the other, [n * rows x cols].
    Ref experts(std::string_view name, int64_t n, int64_t rows, int64_t cols) {
        const auto use = rows % packed_expert_rows == 0 ? WeightUse::matmul : WeightUse::apart;
        return weight(name, n * rows, cols, use, true);
    }
    bool has(std::string_view name);
    int64_t rows(std::string_view name);  // of a matrix whose height the hyperparameters need not say; or 0

    Ref drawn() const { return drawn_; }
    Ref rope(int32_t index) const { return index < 0 ? Ref{} : rows_.ropes[static_cast<size_t>(index)]; }
    // What a layer has in the cache, by names that tell them apart.
    Ref k_cache(int32_t layer);
    Ref v_cache(int32_t layer);
    Ref slots(int32_t group) const { return slots_[static_cast<size_t>(group)]; }
    AttentionBatch batch(int32_t group) const;  // as ops over the cache want it
    // With "<name>.weight" and, if present, "<name>.bias"; plus `residual` where there is one. `eps` 0: the
    // model's.
    Ref norm(Ref x, std::string_view name, Ref residual = {}, float eps = 0);
    // The beginning of a block: the norm, unless the layer has none before its blocks.
    Ref block_input(Ref x, std::string_view name);
    // The end of a block: residual + scale * norm(y), the norm only where the layer has one after its blocks.
    Ref join(Ref residual, Ref y, std::string_view post_norm);
    // The same of y = W input + bias, W being "<name>.weight": one instruction where nothing comes between.
    Ref project(Ref input, std::string_view name, Ref residual, std::string_view post_norm);

    // From within the last layer that adds to the cache only the rows whose logits are wanted go on; before
    // it, of a value that has no other rows, and where a predictor wants them all, the value itself.
    Ref keep_output_rows(Ref x);

  private:
    Ref weight(std::string_view name, int64_t rows, int64_t cols, WeightUse use, bool required,
               int64_t first_rows = 0);
    std::string full_name(std::string_view name) const;
    // What layers attend with: of all rows, or of those that are output.
    struct Rows {
        Ref positions, of_sequences;
        std::vector<Ref> ropes;
    };
    void row_inputs();
    Rows output_rows();
    void cache_inputs(int32_t group, bool stores);
    std::vector<Ref> rope_tables(Ref positions);
    Ref through_layer(const LayerSpec& layer, Ref x, Ref for_layers = {});
    Ref logits_of(Ref x, int64_t n_tokens);
    void guest_inputs(const ModelSpec& main);

    Builder& b_;
    const ModelSpec& spec_;
    WeightStore& weights_;
    const KvTensors& kv_;
    Error error_;
    const LayerSpec* layer_spec_ = nullptr;  // of the current layer; null outside layers
    int32_t first_cache_layer_ = 0;          // of the layers
    bool cuts_ = false;                      // from within it on there are only output rows
    Ref tokens_, out_rows_, drawn_;
    Rows rows_;  // of the current layer
    std::vector<Ref> slots_, page_tables_;
};

// Tokens of a row that a device with memory of its own hands over first, in order, beside the logits.
inline constexpr int32_t shortlist_tokens = 256;

// Records the forward pass and compiles it. Before the weights are placed this is a dry run that checks every
// tensor's name and shape and yields the footprint.
Result<Program> record_forward(const ModelSpec& spec, WeightStore& weights, const KvTensors& kv,
                               const BatchShape& limits, const Placement& placement,
                               std::span<Backend* const> backends);

// A guess is looked for among the first tokens of a large vocabulary, which tokenizers sort by how frequent
// they are: the output matrix is most of what a guess reads. All, where the vocabulary is small.
int32_t first_tokens(int32_t n_vocab);

// The predictor's programs likewise. `short_head`: of first_tokens(). `block`: of one that guesses in blocks.
struct PredictorPrograms {
    Program layer, head, short_head;
    std::optional<Program> block = {};
};
Result<PredictorPrograms> record_predictor(const ModelSpec& spec, WeightStore& weights, const KvTensors& kv,
                                           const BatchShape& limits, const Placement& placement,
                                           std::span<Backend* const> backends);
// Of a model that guesses for `main`, over whose cache it runs; attach() comes first. An Error when it would
// attend to the cache of several devices.
Result<PredictorPrograms> record_assistant(const ModelSpec& spec, WeightStore& weights, const ModelSpec& main,
                                           const Tensor& embedding, const KvTensors& kv,
                                           const BatchShape& limits, const Placement& placement,
                                           std::span<Backend* const> backends);
// The same of a guest, with the main model's weights for the head.
Result<PredictorPrograms> record_guest(const ModelSpec& spec, WeightStore& weights, const ModelSpec& main,
                                       WeightStore& main_weights, const KvTensors& kv,
                                       const BatchShape& limits, const Placement& placement,
                                       const Placement& main_placement, std::span<Backend* const> backends);
// Where it runs: all of it beside that cache, but for the main model's embedding.
Result<Placement> assistant_placement(const ModelSpec& spec, const Placement& main);

// Rotates what attention stores and has it stored: of k and v, and of q, which it returns.
Ref store_keys(Forward& f, const AttentionSpec& a, Ref q, Ref k, Ref v, int32_t cache_layer);
// Keys and values of what a guest reads, h [T x n_embd], into the cache.
void read_block(Forward& f, const AttentionSpec& a, Ref h);

// The cache group of a layer.
int32_t kv_group_of(const LayerSpec& layer);

// Blocks: each reads x and returns the residual stream with its contribution added.
Ref mixer_block(Forward& f, const AttentionSpec& a, Ref x);  // x is the residual stream
Ref mixer_block(Forward& f, const LatentAttentionSpec& a, Ref x);
Ref mixer_block(Forward& f, const DeltaNetSpec& d, Ref x);
Ref mixer_block(Forward& f, const Mamba2Spec& m, Ref x);
Ref mixer_block(Forward& f, const ShortConvSpec& s, Ref x);
inline Ref mixer_block(Forward& f, const NoBlock&, Ref x) { return f.keep_output_rows(x); }
// What a token has for each layer beside the residual stream, and the block that takes a layer's part of it.
Ref per_layer_inputs(Forward& f, Ref tokens, Ref x);
Ref per_layer_block(Forward& f, Ref inputs, Ref x);
Ref ffn_block(Forward& f, const DenseFfnSpec& s, Ref x, Ref residual);
Ref ffn_block(Forward& f, const MoeFfnSpec& s, Ref x, Ref residual);
Ref ffn_block(Forward& f, const TwinFfnSpec& s, Ref x, Ref residual);
inline Ref ffn_block(Forward&, const NoBlock&, Ref, Ref residual) { return residual; }
// Their parts, of an input h that the norm has passed: the dense one up to its last product; which experts a
// row uses, and what each of those makes of it.
Ref dense_hidden(Forward& f, const DenseFfnSpec& s, Ref h);
Ref expert_routes(Forward& f, const MoeFfnSpec& s, Ref h);
Ref expert_outputs(Forward& f, const MoeFfnSpec& s, Ref h, Ref routes);

}  // namespace nibble
