// Windows of a text and their logits.
// The scorer owns the whole cache: window after window starts at position 0 of page 0.
#include "src/eval/scorer.h"

#include <algorithm>
#include <numeric>

namespace nibble {

std::vector<Window> cut_windows(std::span<const Token> text, size_t ctx, size_t stride,
                                std::optional<Token> bos) {
    std::vector<Window> windows;
    for (size_t begin = 0; begin + ctx <= text.size(); begin += stride) {
        Window w;
        w.tokens.assign(text.begin() + static_cast<int64_t>(begin),
                        text.begin() + static_cast<int64_t>(begin + ctx));
        if (bos) w.tokens[0] = *bos;
        w.first_scored = begin == 0 ? 1 : std::max<size_t>(1, ctx - stride);
        windows.push_back(std::move(w));
    }
    return windows;
}

Scorer::Scorer(Engine& engine) : engine_(&engine), pages_(static_cast<size_t>(engine.runner().n_pages())) {
    std::iota(pages_.begin(), pages_.end(), 0);
}

Batch Scorer::batch(const Window& window) const {
    Batch b;
    b.tokens = window.tokens;
    b.positions.resize(window.tokens.size());
    std::iota(b.positions.begin(), b.positions.end(), 0);
    b.sequences = {{0, static_cast<int32_t>(window.tokens.size())}};
    b.out_rows = b.positions;
    const size_t groups = engine_->spec().kv_groups.size();
    b.slots.assign(groups, b.positions);
    b.pages.assign(groups, {pages_});
    return b;
}

Result<std::span<float>> Scorer::logits(const Window& window, Observer* observer) {
    return engine_->runner().run(batch(window), observer);
}

Result<void> Scorer::read(const Window& window, Observer& observer) {
    Batch b = batch(window);
    const auto rows = static_cast<int32_t>(b.out_rows.size());
    b.out_rows.erase(b.out_rows.begin(), b.out_rows.end() - outputs_of_reading(rows));
    return engine_->runner().step(b, &observer);
}

}  // namespace nibble
