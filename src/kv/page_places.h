// Where the pages of a KV group lie in the memory of one of its layers.
// Numbers alone: the engine owns the memory, and the kernels see places as if they were pages.
#pragma once

#include <cstdint>

namespace nibble {

// One behind the other; or, where layers share their memory, in runs: so many pages of a layer, then as many
// of each other layer, and so on. A short text then needs the first run of all layers, side by side, and not
// the first page of memory (2 MiB of it) of every layer.
struct PagePlaces {
    int32_t page_size;   // tokens, and so slots, of a page
    int32_t run = 0;     // pages; 0: they lie one behind the other
    int32_t stride = 0;  // pages of all layers, from a run to the layer's next one

    int32_t of_page(int32_t page) const {
        return run == 0 || page < 0 ? page : page / run * stride + page % run;
    }
    int32_t of_slot(int32_t slot) const {
        return slot < 0 ? slot : of_page(slot / page_size) * page_size + slot % page_size;
    }
};

}  // namespace nibble
