// Dims: the size of a kernel launch.
// Apart from device.h so that host code can plan launches without the vocabulary of kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nibble::cuda {

// Blocks of a launch, threads of a block and its shared memory in bytes.
struct Dims {
    int64_t x = 1;
    int32_t y = 1;
    int32_t z = 1;
    int32_t threads = 32;
    size_t shared = 0;
};

}  // namespace nibble::cuda
