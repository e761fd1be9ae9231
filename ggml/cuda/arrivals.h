// Blocks of which the last to end does what needs all of them.
// A launch needs no order among its blocks for it, and nobody waits.
#pragma once

#include "ggml/cuda/device.h"

namespace nibble::cuda {

// Whether the other blocks of so many have arrived, and what they have written is visible; called once, by
// the whole block. The counter is zero before, and after the last. `shared`: room for a number.
__device__ inline bool arrived_last(int* counter, int blocks, int* shared) {
    sync_block();
    if (thread_index() == 0) {
        // For all threads of the block: the barriers carry it to and from them.
        *shared = atomic_add_acquire_release(counter, 1);
        if (*shared == blocks - 1) *counter = 0;
    }
    sync_block();
    return *shared == blocks - 1;
}

}  // namespace nibble::cuda
