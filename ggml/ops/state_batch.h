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
    int64_t last = -1;   // the page behind all rows
    int64_t kept = 0;    // where that is another: rows whose state stays in `page`
    bool fresh = false;  // it begins with zeros
};

// Of sequence s; `batch` are the operands seq_rows, positions and page_table.
inline StateRun state_run(const Tensor* batch, int64_t s, int64_t n_pages) {
    const int32_t *const rows = batch[0].row<int32_t>(s), *const pages = batch[2].row<int32_t>(s);
    const int64_t n = batch[1].rows, first = std::clamp<int64_t>(rows[0], 0, n);
    StateRun run{first, std::clamp<int64_t>(rows[1], 0, n - first), pages[0], pages[2]};
    run.kept = std::clamp<int64_t>(pages[1], 0, run.count);
    if (run.page < 0 || run.page >= n_pages || run.last < 0 || run.last >= n_pages) run.page = -1;
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

// Takes a sequence's state through its rows: rows(first, n, page, fresh) are computed in place in a page,
// copy(from, to) makes another page the same.
template <class Rows, class Copy>
void walk_pages(const StateRun& run, const Rows& rows, const Copy& copy) {
    if (run.last == run.page) return rows(run.first, run.count, run.page, run.fresh);
    if (run.kept > 0) rows(run.first, run.kept, run.page, run.fresh);
    const bool fresh = run.fresh && run.kept == 0;
    if (!fresh) copy(run.page, run.last);
    if (run.kept < run.count) rows(run.first + run.kept, run.count - run.kept, run.last, fresh);
}

}  // namespace nibble
