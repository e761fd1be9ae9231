// Batch: the rows of one step, and how they get into a program's inputs.
// Plain data, made by a scheduler; no tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ggml/base/draw_row.h"
#include "src/kv/page_places.h"
#include "src/model/forward.h"

namespace nibble {

// Rows of any number of sequences, prefill chunks and decode steps mixed. Plain data, made by a scheduler.
struct Batch {
    // The weight of the first so many tokens, which have a text, at a temperature; 0: none is wanted.
    struct Weighing {
        double temperature = 0;
        int32_t n_tokens = 0;
    };
    struct Rows {
        int32_t first = 0, count = 0;
    };
    struct Copy {
        int32_t group = 0, from = 0, to = 0;  // pages
    };
    // A state that stays as it is behind the first so many rows of its sequence, and the page that takes the
    // one behind all of them; -1: there is none, the state's own page does.
    struct Fork {
        int32_t rows = 0, page = -1;
    };
    // One per row; positions consecutive within a sequence. A token of -1 - i is the one that the device drew
    // for output row i of the last launch.
    std::vector<int32_t> tokens, positions;
    std::vector<Rows> sequences;  // consecutive row ranges
    // Rows whose logits are wanted: ascending, and within a sequence consecutive.
    std::vector<int32_t> out_rows;
    std::vector<Weighing> weighed;  // by output row: what their first tokens come with; may be empty
    std::vector<DrawRow> draws;     // by output row: how the device draws its token; empty: it does not
    // Of a group of states there are no slots, and a page table's first page is the state.
    std::vector<std::vector<int32_t>> slots;                   // [kv group][row]
    std::vector<std::vector<std::span<const int32_t>>> pages;  // [kv group][sequence]: its page table
    std::vector<std::vector<Fork>> forks;  // [kv group][sequence], of groups of states; may be empty
    std::vector<Copy> copies;              // copy-on-write, in order, before anything is written
};

// Writes what every program over rows takes: tokens, positions, the rows of each sequence and those that are
// wanted, slots and page tables of the cache groups that it has to do with, whose pages lie in these places.
void fill_rows(Runner& runner, const ModelSpec& spec, std::span<const PagePlaces> places, const Batch& batch);

}  // namespace nibble
