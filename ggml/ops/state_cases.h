// What the definitions of ops over states share beyond state_batch.h: the check of a batch, and test layouts.
// The layouts have three pages.
#pragma once

#include <string>

#include "ggml/ops/common.h"
#include "ggml/ops/state_batch.h"

namespace nibble {

inline bool is_state_batch(const Builder& b, const AttentionBatch& batch) {
    return is_i32(b, batch.seq_rows) && is_i32(b, batch.positions) && is_i32(b, batch.page_table) &&
           b.value(batch.seq_rows).cols == 2 && b.value(batch.page_table).cols == state_page_columns;
}

// Takes the rows of every sequence through a matrix [k_dim x state.cols] for each head, in double; `step` is
// that of one row and head, with whether its page is anybody's.
inline void for_each_matrix(const OpArgs& a, size_t batch, const Tensor& state, int64_t heads, int64_t k_dim,
                            void (*step)(const OpArgs&, int64_t t, int64_t h, std::vector<double>& s, bool)) {
    const int64_t page_rows = heads * k_dim, V = state.cols;
    for_each_state(a, batch, state.rows / page_rows, [&](const StateRun& run) {
        for (int64_t h = 0; h < heads; ++h) {
            std::vector<double> s(static_cast<size_t>(k_dim * V), 0.0);
            const auto at = [&](int64_t page, size_t i) -> float& {
                const int64_t row = page * page_rows + h * k_dim + static_cast<int64_t>(i) / V;
                return state.row(row)[static_cast<int64_t>(i) % V];
            };
            const auto keep = [&](int64_t page) {
                for (size_t i = 0; i < s.size(); ++i) at(page, i) = static_cast<float>(s[i]);
            };
            const bool counts = run.page >= 0;
            for (size_t i = 0; counts && !run.fresh && i < s.size(); ++i) s[i] = at(run.page, i);
            for (int64_t t = 0; t < run.count; ++t) {
                step(a, run.first + t, h, s, counts);
                if (counts && t + 1 == run.kept) keep(run.page);
            }
            if (counts) keep(run.last);
        }
    });
}

struct StateLayout {
    std::string label;
    std::vector<int32_t> seq_rows, positions, pages;  // pages: of a sequence three numbers

    StepShape shape() const {
        const auto tokens = static_cast<int64_t>(positions.size());
        return {tokens, tokens, static_cast<int64_t>(seq_rows.size() / 2)};
    }
    AttentionBatch inputs(Builder& b, CaseSink& s) const {
        return {s.int_input(b, RowDim::sequences, 2, seq_rows), s.int_input(b, RowDim::tokens, 1, positions),
                s.int_input(b, RowDim::sequences, state_page_columns, pages)};
    }
};

inline std::vector<StateLayout> state_layouts() {
    StateLayout mixed{"mixed", {0, 1, 1, 7, 8, 2}, {69}, {2, 1, 2, 0, 7, 0, 1, 2, 1}};
    StateLayout prompt{"prompt", {0, 33}, {}, {1, 33, 1}};
    // Rows that may turn out wrong: behind one, behind all, from a state that stays, and from the beginning.
    StateLayout guesses{"guesses", {0, 4}, {50, 51, 52, 53}, {0, 1, 2}},
        all{"guesses of none", {0, 2}, {9, 10}, {1, 2, 0}}, staying{"staying", {0, 2}, {9, 10}, {1, 0, 2}},
        fresh{"fresh guesses", {0, 3}, {0, 1, 2}, {2, 2, 1}},
        fresh_copy{"fresh elsewhere", {0, 3}, {0, 1, 2}, {2, 0, 1}};
    for (int32_t i = 0; i < 7; ++i) mixed.positions.push_back(3 + i);
    for (int32_t i = 0; i < 2; ++i) mixed.positions.push_back(i);
    for (int32_t i = 0; i < 33; ++i) prompt.positions.push_back(i);
    return {mixed,
            prompt,
            guesses,
            all,
            staying,
            fresh,
            fresh_copy,
            {"one row", {0, 1}, {300}, {0, 1, 0}},
            {"nobody's", {0, 2, 2, 1, 3, 1}, {5, 6, 0, 4}, {-1, 2, 0, 3000, 1, 3000, 0, 1, -1}},
            {"nothing", {}, {}, {}}};
}

}  // namespace nibble
