// fill_rows(): a batch into the inputs of a program.
// Rows of page tables beyond a sequence's pages are -1.
#include "src/engine/batch.h"

#include <algorithm>
#include <array>

namespace nibble {
namespace {

// Of a group of states: where each is read, how many rows it stays behind, and where it goes.
void fill_states(std::span<int32_t> table, const Batch& batch, size_t g) {
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
        const int32_t page = batch.pages[g][s].empty() ? -1 : batch.pages[g][s].front();
        const Batch::Fork fork =
            g < batch.forks.size() && s < batch.forks[g].size() ? batch.forks[g][s] : Batch::Fork{};
        const std::array columns{page, fork.rows, fork.page < 0 ? page : fork.page};
        static_assert(columns.size() == state_page_columns);
        std::ranges::copy(columns, table.subspan(s * columns.size()).begin());
    }
}

// The output rows of each sequence, counted among output rows, and their positions.
void fill_output_rows(std::span<int32_t> seq_rows, std::span<int32_t> positions, const Batch& batch) {
    size_t row = 0;
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
        const size_t first = row;
        const int32_t end = batch.sequences[s].first + batch.sequences[s].count;
        for (; row < batch.out_rows.size() && batch.out_rows[row] < end; ++row)
            positions[row] = batch.positions[static_cast<size_t>(batch.out_rows[row])];
        seq_rows[2 * s] = static_cast<int32_t>(first);
        seq_rows[2 * s + 1] = static_cast<int32_t>(row - first);
    }
}

}  // namespace

void fill_rows(Runner& runner, const ModelSpec& spec, std::span<const PagePlaces> places,
               const Batch& batch) {
    const auto fill = [&](std::string_view name, std::span<const int32_t> values) {
        std::ranges::copy(values, runner.input(name).begin());
    };
    fill(io::tokens, batch.tokens);
    fill(io::positions, batch.positions);
    fill(io::out_rows, batch.out_rows);
    const auto seq_rows = runner.input(io::seq_rows);
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
        seq_rows[2 * s] = batch.sequences[s].first;
        seq_rows[2 * s + 1] = batch.sequences[s].count;
    }
    if (const auto positions = runner.input(io::out_positions); !positions.empty())
        fill_output_rows(runner.input(io::out_seq_rows), positions, batch);
    for (size_t g = 0; g < spec.kv_groups.size(); ++g) {
        const auto group = static_cast<int32_t>(g);
        const auto table = runner.input(io::page_table(group));
        if (table.empty()) continue;
        if (spec.kv_groups[g].states) {
            fill_states(table, batch, g);
            continue;
        }
        const auto slots = runner.input(io::slots(group));
        for (size_t r = 0; r < batch.slots[g].size() && !slots.empty(); ++r)
            slots[r] = places[g].of_slot(batch.slots[g][r]);
        const size_t columns = table.size() / static_cast<size_t>(runner.program().limits.sequences);
        for (size_t s = 0; s < batch.sequences.size(); ++s) {
            const auto row = table.subspan(s * columns, columns);
            std::ranges::fill(row, -1);
            std::ranges::transform(batch.pages[g][s], row.begin(),
                                   [&](int32_t page) { return places[g].of_page(page); });
        }
    }
}

}  // namespace nibble
