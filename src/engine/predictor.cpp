// Predictor: hidden states travel through host memory between its programs; they are few.
// The short head shares the rows of the output matrix with the other.
#include "src/engine/predictor.h"

#include <algorithm>
#include <utility>

namespace nibble {
namespace {

int64_t count(const auto& list) { return static_cast<int64_t>(list.size()); }

StepShape shape_of(const Batch& batch) {
    return {count(batch.tokens), count(batch.out_rows), count(batch.sequences)};
}

}  // namespace

Predictor::Predictor(PredictorPrograms programs, std::vector<int32_t> groups, BlockGuessSpec block)
    : programs_(std::move(programs)), groups_(std::move(groups)), block_(std::move(block)) {
    std::ranges::sort(groups_);
    groups_.erase(std::unique(groups_.begin(), groups_.end()), groups_.end());
}

Result<void> Predictor::create(std::span<Backend* const> backends, std::vector<PagePlaces> of_groups) {
    places_ = std::move(of_groups);
    const auto made = [&](Program& p) -> Result<std::unique_ptr<Runner>> {
        return std::make_unique<Runner>(NIBBLE_TRY(Runner::create(std::move(p), backends)));
    };
    layer_ = NIBBLE_TRY(made(programs_.layer));
    head_ = NIBBLE_TRY(made(programs_.head));
    short_head_ = NIBBLE_TRY(made(programs_.short_head));
    if (programs_.block) block_rows_ = NIBBLE_TRY(made(*programs_.block));
    return {};
}

std::vector<const Program*> Predictor::programs() const {
    std::vector<const Program*> list;
    if (!layer_) {
        list = {&programs_.layer, &programs_.head, &programs_.short_head};
        if (programs_.block) list.push_back(&*programs_.block);
        return list;
    }
    for (const Runner* r : {layer_.get(), head_.get(), short_head_.get(), block_rows_.get()})
        if (r) list.push_back(&r->program());
    return list;
}

std::vector<const Program*> Predictor::programs_of_a_guess() const {
    auto list = programs();
    list.erase(list.begin() + 1);  // the long head
    return list;
}

size_t Predictor::allocated_bytes(size_t device) const {
    size_t bytes = 0;
    for (const Runner* r : {layer_.get(), head_.get(), short_head_.get(), block_rows_.get()})
        if (r) bytes += r->allocated_bytes(device);
    return bytes;
}

Result<std::span<float>> Predictor::read(const ModelSpec& spec, const Batch& batch,
                                         std::span<const float> hidden) {
    fill_rows(*layer_, spec, places_, batch);
    const auto queries = layer_->input(io::query_positions);
    for (size_t i = 0; i < batch.positions.size() && !queries.empty(); ++i)
        queries[i] = batch.positions[i] + 1;
    std::ranges::copy(hidden, layer_->input<float>(io::hidden).begin());
    NIBBLE_TRY(layer_->run(shape_of(batch)));
    states_.clear();
    if (batch.out_rows.empty() || block_rows_) return std::span<float>();
    const auto states = NIBBLE_TRY(layer_->output(layer_->has_output(io::state) ? io::state : io::hidden));
    states_.assign(states.begin(), states.end());
    return layer_->output(io::hidden);
}

void Predictor::add_block(Batch& batch, int32_t token, int32_t position, int32_t wanted) const {
    for (int32_t i = 0; i < block_.size; ++i) {
        const auto row = static_cast<int32_t>(batch.tokens.size());
        batch.tokens.push_back(i == 0 ? token : block_.mask);
        batch.positions.push_back(position + block_.size - 1);
        batch.sequences.push_back({row, 1});
        if (i > 0 && i <= wanted) batch.out_rows.push_back(row);
    }
}

Result<void> Predictor::guess(const ModelSpec& spec, const Batch& batch) {
    fill_rows(*block_rows_, spec, places_, batch);
    const auto queries = block_rows_->input(io::query_positions);
    for (size_t i = 0; i < batch.positions.size(); ++i)  // whole blocks, of positions that are their ends
        queries[i] = batch.positions[i] - block_.size + 1 + static_cast<int32_t>(i) % block_.size;
    NIBBLE_TRY(block_rows_->run(shape_of(batch)));
    const auto states = NIBBLE_TRY(block_rows_->output(io::hidden));
    states_.assign(states.begin(), states.end());
    return {};
}

Result<std::span<float>> Predictor::logits(std::span<const float> states, bool all) {
    Runner& head = all ? *head_ : *short_head_;
    const std::span<float> input = head.input<float>(io::hidden);
    std::ranges::copy(states, input.begin());
    const int64_t most = head.program().limits.outputs, rows = std::ssize(states) * most / std::ssize(input);
    NIBBLE_TRY(head.run({rows, rows, rows}));
    return head.output(io::logits);
}

}  // namespace nibble
