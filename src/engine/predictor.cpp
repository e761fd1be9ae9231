// Predictor: hidden states travel through host memory between its programs; they are few.
// The short head shares the rows of the output matrix with the other.
#include "src/engine/predictor.h"

#include <algorithm>

namespace nibble {

Result<void> Predictor::create(std::span<Backend* const> backends) {
    const auto made = [&](Program& p) -> Result<std::unique_ptr<Runner>> {
        return std::make_unique<Runner>(NIBBLE_TRY(Runner::create(std::move(p), backends)));
    };
    layer_ = NIBBLE_TRY(made(programs_.layer));
    head_ = NIBBLE_TRY(made(programs_.head));
    short_head_ = NIBBLE_TRY(made(programs_.short_head));
    return {};
}

std::array<const Program*, 3> Predictor::programs() const {
    if (!layer_) return {&programs_.layer, &programs_.head, &programs_.short_head};
    return {&layer_->program(), &head_->program(), &short_head_->program()};
}

size_t Predictor::allocated_bytes(size_t device) const {
    return layer_->allocated_bytes(device) + head_->allocated_bytes(device) +
           short_head_->allocated_bytes(device);
}

Result<std::span<float>> Predictor::read(const ModelSpec& spec, const Batch& batch,
                                         std::span<const float> hidden) {
    fill_rows(*layer_, spec, batch);
    const auto queries = layer_->input(io::query_positions);
    for (size_t i = 0; i < batch.positions.size() && !queries.empty(); ++i)
        queries[i] = batch.positions[i] + 1;
    std::ranges::copy(hidden, layer_->input<float>(io::hidden).begin());
    const auto rows = [](const auto& list) { return static_cast<int64_t>(list.size()); };
    NIBBLE_TRY(layer_->run({rows(batch.tokens), rows(batch.out_rows), rows(batch.sequences)}));
    states_.clear();
    if (batch.out_rows.empty()) return std::span<float>();
    const auto states = NIBBLE_TRY(layer_->output(layer_->has_output(io::state) ? io::state : io::hidden));
    states_.assign(states.begin(), states.end());
    return layer_->output(io::hidden);
}

Result<std::span<float>> Predictor::logits(std::span<const float> states, bool all) {
    Runner& head = all ? *head_ : *short_head_;
    const std::span<float> input = head.input<float>(io::hidden);
    std::ranges::copy(states, input.begin());
    const int64_t sequences = head.program().limits.sequences,
                  rows = std::ssize(states) * sequences / std::ssize(input);
    NIBBLE_TRY(head.run({rows, rows, rows}));
    return head.output(io::logits);
}

}  // namespace nibble
