// What ops over states share: the rows of each sequence with the page of its state.
// Contracts are in ggml/ops/ops.h.
#pragma once

#include <algorithm>

#include "ggml/ops/ops.h"

namespace nibble {

// Consecutive rows of one sequence.
struct StateRun {
    int64_t first = 0, count = 0;
    int64_t page = -1;   // -1: the state is nobody's
    bool fresh = false;  // it begins with zeros
};

// Of sequence s; `batch` are the operands seq_rows, positions and page_table.
inline StateRun state_run(const Tensor* batch, int64_t s, int64_t n_pages) {
    const int32_t* const rows = batch[0].row<int32_t>(s);
    const int64_t n = batch[1].rows, first = std::clamp<int64_t>(rows[0], 0, n);
    StateRun run{first, std::clamp<int64_t>(rows[1], 0, n - first), *batch[2].row<int32_t>(s), false};
    if (run.page >= n_pages) run.page = -1;
    run.fresh = run.count > 0 && *batch[1].row<int32_t>(run.first) == 0;
    return run;
}

// Calls fn with every sequence that has rows; the batch's operands are those from `at` on.
template <class Fn>
void for_each_state(const OpArgs& a, size_t at, int64_t n_pages, const Fn& fn) {
    for (int64_t s = 0; s < a.in[at].rows; ++s) {
        const StateRun run = state_run(&a.in[at], s, n_pages);
        if (run.count > 0) fn(run);
    }
}

}  // namespace nibble
