// How fast this machine's memory can be read.
// The ceiling of generation on the processor.
#pragma once

#include "ggml/base/thread_pool.h"

namespace nibble::cpu {

// Bytes per second that the pool's threads read from a buffer far larger than the caches, the best of a few
// passes; 0 when there is no memory for the buffer.
double read_bandwidth(ThreadPool& pool);

}  // namespace nibble::cpu
